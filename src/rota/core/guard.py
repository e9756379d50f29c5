"""The fourth step of a round: which changes are worth their cost.

A start is always worth it. A job that has only just started is left alone, unless a higher
priority needs its GPUs or its node drains. A job grows only if it ends sooner although it has to
stop and start for it. A job gives way only if somebody then uses what it gives up; among those
who could, the ones who lose least do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rota.core.model import Allocation, Job, JobId, Running, Starting, n_gpus
from rota.core.placement import Placed, Wish, place
from rota.core.plan import Change, Kind, diff
from rota.core.progress import remaining_s
from rota.core.reasons import Fragmented, Protected, Reason
from rota.core.view import View


@dataclass(frozen=True, slots=True)
class Guarded:
    """What is left of a plan after changes that do not pay were dropped from it."""

    wishes: Sequence[Wish]
    allocations: Mapping[JobId, Allocation]
    waits: Mapping[JobId, Reason] = field(default_factory=dict[JobId, Reason])
    wake_at_s: float = math.inf


def guard(view: View, wishes: Sequence[Wish], placed: Placed) -> Guarded:
    changes = diff(view.planned, placed.allocations)
    if not view.rules.is_guarded or all(change.kind is Kind.START for change in changes):
        return Guarded(wishes, placed.allocations)
    jobs = {job.id: job for job in view.jobs}
    costly = [change for change in changes if _costs(change, jobs, view)]
    protected = _protected(view, changes, costly, jobs)
    kept = set(protected)
    kept |= {c.job_id for c in costly if c.kind is Kind.GROW and not _pays(c, jobs, view)}
    kept |= _spared(view, [c for c in changes if c.job_id not in kept], jobs)
    if not kept:
        return Guarded(wishes, placed.allocations)
    kept_wishes, allocations = _place_around(view, wishes, kept)
    waits = _waits(kept_wishes, allocations, protected)
    wake_at_s = min(protected.values(), default=math.inf)
    return Guarded(kept_wishes, allocations, waits, wake_at_s)


def is_protected_until(job: Job, view: View) -> float:
    """When the job will have run long enough to be disturbed."""
    if not isinstance(job.phase, Running | Starting):
        return -math.inf
    own = job.spec.min_runtime_s
    return job.phase.since_s + (own if own is not None else view.rules.min_runtime_s)


def restart_cost_s(job: Job, view: View) -> float:
    """Seconds that a stop and a start take from the job: its own if measured."""
    return job.restart_s if job.restart_s is not None else view.rules.restart_cost_s


def _costs(change: Change, jobs: Mapping[JobId, Job], view: View) -> bool:
    """Whether a change disturbs a job that runs and could go on as it is."""
    job = jobs.get(change.job_id)
    if job is None or not change.before or not isinstance(job.phase, Running | Starting):
        return False
    nodes = (view.nodes.get(slot.node) for slot in change.before)
    return all(node is not None and not node.is_draining for node in nodes)


def _protected(
    view: View, changes: Sequence[Change], costly: Iterable[Change], jobs: Mapping[JobId, Job]
) -> dict[JobId, float]:
    """Jobs to be left alone for their minimum run time, and until when."""
    winners = (jobs[c.job_id] for c in changes if c.kind in (Kind.START, Kind.GROW))
    top_priority = max((job.spec.priority for job in winners), default=-math.inf)
    protected: dict[JobId, float] = {}
    for change in costly:
        job = jobs[change.job_id]
        until_s = is_protected_until(job, view)
        is_outranked = top_priority > job.spec.priority and change.kind is not Kind.GROW
        if until_s > view.now and not is_outranked:
            protected[job.id] = until_s
    return protected


def _pays(change: Change, jobs: Mapping[JobId, Job], view: View) -> bool:
    job = jobs[change.job_id]
    as_it_is = remaining_s(job, view.now, len(change.before))
    if math.isinf(as_it_is):
        return True
    grown = remaining_s(job, view.now, len(change.after))
    return as_it_is > grown + restart_cost_s(job, view)


def _spared(view: View, changes: Iterable[Change], jobs: Mapping[JobId, Job]) -> set[JobId]:
    """Victims whose GPUs nobody would use; those who would lose most are spared first."""
    spared: set[JobId] = set()
    by_type: dict[str, list[Change]] = {}
    for change in changes:
        slots = change.before or change.after
        if slots[0].gpus and slots[0].node in view.nodes:
            by_type.setdefault(_gpu_type(view, slots), []).append(change)
    for gpu_type, of_type in by_type.items():
        victims = [c for c in of_type if _freed(c) > 0 and _costs(c, jobs, view)]
        surplus = view.free.n_free(gpu_type) + sum(map(_freed, of_type))
        for change in sorted(victims, key=lambda c: -_loss_gpu_s(c, jobs, view)):
            if _freed(change) <= surplus:
                surplus -= _freed(change)
                spared.add(change.job_id)
    return spared


def _gpu_type(view: View, slots: Allocation) -> str:
    gpus = view.nodes[slots[0].node].gpus
    return next(gpu.type for gpu in gpus if gpu.index == slots[0].gpus[0])


def _freed(change: Change) -> float:
    return n_gpus(change.before) - n_gpus(change.after)


def _loss_gpu_s(change: Change, jobs: Mapping[JobId, Job], view: View) -> float:
    return restart_cost_s(jobs[change.job_id], view) * n_gpus(change.before)


def _place_around(
    view: View, wishes: Sequence[Wish], kept: set[JobId]
) -> tuple[list[Wish], dict[JobId, Allocation]]:
    """Place again with the kept jobs as they are. Whoever runs and finds no place for its new
    size is kept as it is, too; that ends, because the last plan had room for all who run."""
    jobs = {job.id: job for job in view.jobs}
    while True:
        as_they_are = [
            Wish(jobs[job_id], len(view.planned[job_id]), view.gpu_types[job_id])
            for job_id in view.planned
            if job_id in kept
        ]
        others = [wish for wish in wishes if wish.job.id not in kept]
        placed = place(view, as_they_are + others, in_order=True)
        stuck = {job_id for job_id in placed.short if _stands(view, job_id)} - kept
        if not stuck:
            return as_they_are + others, placed.allocations
        kept = kept | stuck


def _stands(view: View, job_id: JobId) -> bool:
    nodes = [view.nodes.get(slot.node) for slot in view.planned.get(job_id, ())]
    return bool(nodes) and all(node and not node.is_draining for node in nodes)


def _waits(
    wishes: Iterable[Wish], allocations: Mapping[JobId, Allocation], protected: dict[JobId, float]
) -> dict[JobId, Reason]:
    victim = min(protected, key=protected.__getitem__, default=None)
    waits: dict[JobId, Reason] = {}
    for wish in wishes:
        if wish.job.id not in allocations:
            waits[wish.job.id] = (
                Protected(victim, protected[victim]) if victim else Fragmented(wish.workers, 0)
            )
    return waits
