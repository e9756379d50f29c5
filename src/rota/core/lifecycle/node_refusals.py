"""Keeps a job away from nodes that rejected it.

Only the engine knows why a node rejects a job: for example a volume that this node cannot mount,
which no plan can see. While node after node rejects a job, the scheduler tries none of them a
second time. Pure functions of one job.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from rota.core.lifecycle.size_caps import capped
from rota.core.model.allocation import Slot
from rota.core.model.events import WorkersLost
from rota.core.model.job import Job, NodeRefusal, Running

REFUSED_S = 300.0
"""How long the scheduler avoids all nodes that rejected a job, after the last rejection."""


def with_refusal(job: Job, event: WorkersLost, *, now: float) -> Job:
    """The job after nodes rejected some of its workers.

    A node that keeps other workers of the job is not avoided: the job only may not grow for a
    while. The job does not back off, because the next node may accept it.
    """
    slots = dict(zip(job.numbers, job.members, strict=True))
    nodes = {slots[number].node: None for number in sorted(event.workers & slots.keys())}
    phase = job.phase
    if isinstance(phase, Running):
        stay = {slot.node for number, slot in slots.items() if number not in event.workers}
        coming = phase.joining_numbers or phase.numbers
        if stay & nodes.keys():
            n_left = len(set(coming) - event.workers)
            job = capped(job, n_left, why=event.reason, now=now)
        nodes = {node: None for node in nodes if node not in stay}
    if not nodes:
        return job
    known = without_expired_refusal(job, now).refusal
    all_nodes = (*(known.nodes if known else ()), *nodes)
    refusal = NodeRefusal(tuple(dict.fromkeys(all_nodes)), now + REFUSED_S, event.reason)
    return replace(job, refusal=refusal, losses=0)


def without_expired_refusal(job: Job, now: float) -> Job:
    """The job without its refusal, if the refusal has expired."""
    if job.refusal is None or job.refusal.until_s > now:
        return job
    return replace(job, refusal=None)


def uses_refused_node(job: Job, allocation: Iterable[Slot]) -> bool:
    """Whether the allocation puts new workers of the job on a node that rejected the job."""
    if job.refusal is None:
        return False
    nodes, held = job.refusal.nodes, job.members
    return any(slot.node in nodes and slot not in held for slot in allocation)


def next_refusal_ends_s(jobs: Iterable[Job]) -> float:
    """When the first refusal of these jobs expires."""
    return min((job.refusal.until_s for job in jobs if job.refusal is not None), default=math.inf)
