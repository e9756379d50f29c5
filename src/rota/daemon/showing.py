"""Keeps what the objects of a cluster say of their jobs up to date: why they wait, how far they
are, when they will be done. How often that is written is the store's business."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from rota.daemon.desk import Desk
from rota.daemon.outlook import Outlook, outlook
from rota.daemon.views import own_reason
from rota.store.cluster import ClusterStore
from rota.store.training_jobs import Shown
from rota.tasks import Bugs

EVERY_S = 2.0
REST_FACTOR = 20.0
"""A look at all jobs is followed by a rest of so many times its own length."""
AT_A_TIME = 100
FINISH_S, FINISH_PART = 30.0, 0.1
"""Another expected end is told when it is so far from the one before, or by such a part of what is
left."""


async def keep_showing(desk: Desk, store: ClusterStore) -> None:
    loop, bugs = asyncio.get_running_loop(), Bugs("what is new of a job could not be shown")
    while True:
        began_s = loop.time()
        if not desk.shell.trouble:
            await desk.foresight.look()
            await _show_all(desk, store, bugs=bugs)
        await asyncio.sleep(max(EVERY_S, REST_FACTOR * (loop.time() - began_s)))


async def _show_all(desk: Desk, store: ClusterStore, *, bugs: Bugs) -> None:
    for place, job_id in enumerate(list(desk.shell.kernel.jobs)):
        if place % AT_A_TIME == 0:
            await asyncio.sleep(0)
        job, now = desk.shell.kernel.job(job_id), desk.clock()
        if job is not None:
            with bugs.of(job=job_id):
                ahead = outlook(job, now, expected=desk.foresight.expected.get(job_id))
                reason = desk.why(job) or own_reason(job, now)
                store.show(job_id, shown_of(reason, ahead, before=store.shown(job_id), now=now))


def shown_of(reason: str, ahead: Outlook, *, before: Shown, now: float) -> Shown:
    """Only what is worth another write."""
    return replace(
        before,
        reason=reason,
        progress=None if ahead.progress is None else round(ahead.progress, 2),
        finish_s=_finish(ahead.finish_s, before.finish_s, now=now),
    )


def _finish(finish_s: float | None, before_s: float | None, *, now: float) -> float | None:
    if finish_s is None or before_s is None:
        return finish_s
    is_near = abs(finish_s - before_s) <= max(FINISH_S, FINISH_PART * abs(finish_s - now))
    return before_s if is_near else finish_s
