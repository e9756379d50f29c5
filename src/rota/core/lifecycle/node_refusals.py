"""Nodes that would not have a job: it is not sent there again for a while. Pure.

Only the engine knows why: a volume that this node cannot have, say, which no plan sees. As long as
one node after the other refuses the job, none of them is tried a second time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from rota.core.events import WorkersLost
from rota.core.growth import capped
from rota.core.model import Job, Refusal, Running, Slot

REFUSED_S = 300.0
"""How long after the last of them all nodes that refused a job are left alone."""


def refused(job: Job, event: WorkersLost, *, now: float) -> Job:
    """The job, after nodes would not have some of its workers. A node where others of them stay
    can have the job, and only no more of it: it does not grow for a while. The next node need not
    refuse it, so that it is no reason to wait."""
    seats = dict(zip(job.numbers, job.members, strict=True))
    nodes = {seats[number].node: None for number in sorted(event.workers & seats.keys())}
    phase = job.phase
    if isinstance(phase, Running):
        stay = {slot.node for number, slot in seats.items() if number not in event.workers}
        coming = phase.joining_numbers or phase.numbers
        if stay & nodes.keys():
            n_left = len(set(coming) - event.workers)
            job = capped(job, n_left, why=event.reason, now=now)
        nodes = {node: None for node in nodes if node not in stay}
    if not nodes:
        return job
    known = without_lapsed(job, now).refusal
    all_nodes = (*(known.nodes if known else ()), *nodes)
    refusal = Refusal(tuple(dict.fromkeys(all_nodes)), now + REFUSED_S, event.reason)
    return replace(job, refusal=refusal, losses=0)


def without_lapsed(job: Job, now: float) -> Job:
    """The job, with a refusal only if it still counts."""
    if job.refusal is None or job.refusal.until_s > now:
        return job
    return replace(job, refusal=None)


def is_barred(job: Job, allocation: Iterable[Slot]) -> bool:
    """Whether the job would come to a node that refused it."""
    if job.refusal is None:
        return False
    nodes, held = job.refusal.nodes, job.members
    return any(slot.node in nodes and slot not in held for slot in allocation)


def next_refusal_ends_s(jobs: Iterable[Job]) -> float:
    """When the first of them may be sent anywhere again."""
    return min((job.refusal.until_s for job in jobs if job.refusal is not None), default=math.inf)
