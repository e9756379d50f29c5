"""Keeps what the objects of a cluster say of their jobs up to date: why they wait, how far they
are, when they will be done. How often that is written is the store's business."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from rota.core.model import Job
from rota.daemon.desk import Desk
from rota.daemon.people import Caller
from rota.store.cluster import ClusterStore
from rota.store.training_jobs import Shown
from rota.wire.jobs import JobView

EVERY_S = 2.0
REST_FACTOR = 20.0
"""A look at all jobs is followed by a rest of so many times its own length."""
AT_A_TIME = 100
FINISH_S, FINISH_PART = 30.0, 0.1
"""Another expected end is told when it is so far from the one before, or by such a part of what is
left."""
EVERYBODY = Caller("rota", is_admin=True)


async def keep_showing(desk: Desk, store: ClusterStore) -> None:
    loop = asyncio.get_running_loop()
    while True:
        began_s = loop.time()
        if not desk.shell.trouble:
            await desk.foresight.look()
            await _show_all(desk, store)
        await asyncio.sleep(max(EVERY_S, REST_FACTOR * (loop.time() - began_s)))


async def _show_all(desk: Desk, store: ClusterStore) -> None:
    jobs: list[Job] = list(desk.shell.kernel.jobs.values())
    for place, job in enumerate(jobs):
        if place % AT_A_TIME == 0:
            await asyncio.sleep(0)
        view = desk.view(EVERYBODY, job)
        store.show(job.id, shown_of(view, store.shown(job.id), now=desk.clock()))


def shown_of(view: JobView, before: Shown, *, now: float) -> Shown:
    """Only what is worth another write."""
    return replace(
        before,
        reason=view.reason,
        progress=None if view.progress is None else round(view.progress, 2),
        finish_s=_finish(view.finish_s, before.finish_s, now=now),
    )


def _finish(finish_s: float | None, before_s: float | None, *, now: float) -> float | None:
    if finish_s is None or before_s is None:
        return finish_s
    is_near = abs(finish_s - before_s) <= max(FINISH_S, FINISH_PART * abs(finish_s - now))
    return before_s if is_near else finish_s
