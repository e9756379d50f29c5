"""The fourth step of a round, the guard: decides which jobs are preempted, shrunk or grown.

Changes that are not worth their cost are dropped.

A start is always worth it. A job below its minimum run time is left alone, unless a job with a
higher priority wants GPUs of its type or its node drains. A job grows only if it then finishes
sooner, including the cost of the resize. A job is preempted or shrunk only if another job then uses
its GPUs; the jobs that lose least are chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rota.core.estimation.remaining_time import remaining_s
from rota.core.explain.reasons import Fragmented, Protected, Reason
from rota.core.lifecycle.size_caps import is_own_resize
from rota.core.model.allocation import Allocation, n_gpus
from rota.core.model.job import Job, JobId, Mode, Running, Starting
from rota.core.placement.placer import PlacementRequest, PlacementResult, place
from rota.core.placement.worker_demand import demand_of
from rota.core.scheduling.disruption_cost import loss_gpu_s, protected_until_s, resize_cost_s
from rota.core.scheduling.plan import AllocationChange, ChangeKind, diff
from rota.core.scheduling.policy_api import TOLERANCE
from rota.core.scheduling.view import View

SPARING_TRIES = 3


@dataclass(frozen=True, slots=True)
class Guarded:
    """The placement after the guard dropped changes that do not pay."""

    requests: Sequence[PlacementRequest]
    placed: PlacementResult
    waits: Mapping[JobId, Reason] = field(default_factory=dict[JobId, Reason])
    wake_at_s: float = math.inf

    @property
    def allocations(self) -> Mapping[JobId, Allocation]:
        return self.placed.allocations


def guard(view: View, requests: Sequence[PlacementRequest], *, placed: PlacementResult) -> Guarded:
    """Drop the changes of a placement that do not pay."""
    changes = diff(view.planned, placed.allocations)
    if not view.rules.is_guarded or all(change.kind is ChangeKind.START for change in changes):
        return Guarded(requests, placed)
    case = _PreemptionCase(view, requests)
    protected = case.protected(changes)
    kept = protected.keys() | case.unprofitable(changes)
    if kept:
        placed = place(view, case.requests_with(kept), in_order=True)
    kept, placed = _spare_victims(case, placed, kept=frozenset(kept))
    return Guarded(
        requests=case.requests_with(kept),
        placed=placed,
        waits=case.waits(placed, protected),
        wake_at_s=min(protected.values(), default=math.inf),
    )


def _spare_victims(
    case: _PreemptionCase, placed: PlacementResult, *, kept: frozenset[JobId]
) -> tuple[frozenset[JobId], PlacementResult]:
    """Spare victims whose GPUs no other job needs, first those that would lose most.

    Counts of GPUs tell how many victims may be spared, and a second placement checks that: no job
    may lose what it gained. Then every victim whose slots are still free keeps them.
    """
    for _ in range(SPARING_TRIES):
        spared = kept | case.spared_by_number(placed)
        if spared == kept:
            break
        again = place(case.view, case.requests_with(spared), in_order=True)
        if case.has_losers(placed, again):
            break
        kept, placed = spared, again
    untouched = case.untouched(placed)
    if not untouched:
        return kept, placed
    allocations = {**placed.allocations, **untouched}
    return kept | untouched.keys(), replace(placed, allocations=allocations)


class _PreemptionCase:
    """The jobs and requests of one round, to judge changes."""

    def __init__(self, view: View, requests: Sequence[PlacementRequest]) -> None:
        self.view = view
        self._requests = requests
        self._jobs = {job.id: job for job in view.jobs}
        self._types = {
            **view.gpu_types,
            **{request.job.id: request.gpu_type for request in requests},
        }

    def requests_with(self, kept: Iterable[JobId]) -> list[PlacementRequest]:
        """The requests if the kept jobs stay unchanged; the kept jobs come first."""
        view, kept = self.view, frozenset(kept)
        as_they_are = [
            PlacementRequest(self._jobs[job_id], len(held), view.gpu_types[job_id])
            for job_id, held in view.planned.items()
            if job_id in kept
        ]
        return as_they_are + [request for request in self._requests if request.job.id not in kept]

    def protected(self, changes: Sequence[AllocationChange]) -> dict[JobId, float]:
        """Jobs below their minimum run time, and when they reach it."""
        highest: dict[str, int] = {}
        for change in changes:
            if change.kind in (ChangeKind.START, ChangeKind.GROW):
                gpu_type, job = self._types[change.job_id], self._jobs[change.job_id]
                highest[gpu_type] = max(job.spec.priority, highest.get(gpu_type, -(10**9)))
        protected: dict[JobId, float] = {}
        for change in changes:
            job = self._disturbed(change)
            if job is None:
                continue
            until_s = protected_until_s(job, self.view)
            rival = highest.get(self.view.gpu_types[job.id], -(10**9))
            is_outranked = rival > job.spec.priority and change.kind is not ChangeKind.GROW
            if until_s > self.view.now and not is_outranked:
                protected[job.id] = until_s
        return protected

    def unprofitable(self, changes: Iterable[AllocationChange]) -> set[JobId]:
        """Jobs that would not finish sooner by growing; a fixed job would start from scratch."""
        now = self.view.now
        unprofitable: set[JobId] = set()
        for change in changes:
            job = self._disturbed(change) if change.kind is ChangeKind.GROW else None
            if job is None:
                continue
            if job.spec.mode is Mode.FIXED:
                unprofitable.add(job.id)
                continue
            as_it_is_s = remaining_s(job, now, workers=len(change.before))
            grown_s = remaining_s(job, now, workers=len(change.after))
            grown_s += resize_cost_s(job, self.view)
            if math.isfinite(as_it_is_s) and as_it_is_s <= grown_s:
                unprofitable.add(job.id)
        return unprofitable

    def spared_by_number(self, placed: PlacementResult) -> set[JobId]:
        """Victims for which enough GPUs are left by count, wherever those GPUs are."""
        spared: set[JobId] = set()
        left: dict[str, float] = {}
        for change in self._victims(placed):
            gpu_type = self.view.gpu_types[change.job_id]
            free = left.setdefault(gpu_type, placed.left.free_gpus(gpu_type))
            freed = n_gpus(change.before) - n_gpus(change.after)
            if 0 < freed <= free + TOLERANCE:
                left[gpu_type] = free - freed
                spared.add(change.job_id)
        return spared

    def untouched(self, placed: PlacementResult) -> dict[JobId, Allocation]:
        """Victims whose slots are still free, with those slots. The slots are taken here."""
        untouched: dict[JobId, Allocation] = {}
        for change in self._victims(placed):
            job_id = change.job_id
            had = demand_of(self._jobs[job_id], self.view.gpu_types[job_id])
            has = demand_of(self._jobs[job_id], self._types[job_id])
            placed.left.give(change.after, has)
            if placed.left.try_take_all(change.before, had):
                untouched[job_id] = change.before
            else:
                placed.left.take_all(change.after, has)
        return untouched

    def has_losers(self, placed: PlacementResult, again: PlacementResult) -> bool:
        """Whether a job that gains workers in `placed` gains fewer in `again`."""
        return any(
            len(again.allocations.get(change.job_id, ())) < len(change.after)
            for change in diff(self.view.planned, placed.allocations)
            if len(change.after) > len(change.before)
        )

    def waits(
        self, placed: PlacementResult, protected: Mapping[JobId, float]
    ) -> dict[JobId, Reason]:
        """Why the requests without a place wait."""
        soonest: dict[str, JobId] = {}
        for job_id in sorted(protected, key=protected.__getitem__):
            soonest.setdefault(self.view.gpu_types[job_id], job_id)
        waits: dict[JobId, Reason] = {}
        for request in self._requests:
            job_id, victim = request.job.id, soonest.get(request.gpu_type)
            if job_id in placed.allocations or job_id not in placed.short:
                continue
            if victim is not None:
                waits[job_id] = Protected(victim, protected[victim])
            else:
                waits[job_id] = Fragmented(request.workers, placed.short[job_id])
        return waits

    def _victims(self, placed: PlacementResult) -> list[AllocationChange]:
        """Changes that take workers from a job; protected jobs and those that lose most come
        first."""
        changes = diff(self.view.planned, placed.allocations)
        victims = [
            c
            for c in changes
            if c.kind in (ChangeKind.STOP, ChangeKind.SHRINK) and self._disturbed(c)
        ]
        return sorted(victims, key=self._worth_sparing, reverse=True)

    def _worth_sparing(self, change: AllocationChange) -> tuple[bool, float]:
        job, view = self._jobs[change.job_id], self.view
        is_fresh = protected_until_s(job, view) > view.now
        if change.after and job.spec.mode.resizes_in_place:
            return is_fresh, resize_cost_s(job, view) * n_gpus(job.allocation)
        return is_fresh, loss_gpu_s(job, view)

    def _disturbed(self, change: AllocationChange) -> Job | None:
        """The job, if it could continue unchanged and the change serves other jobs only."""
        job = self._jobs.get(change.job_id)
        if job is None or not change.before or not isinstance(job.phase, Running | Starting):
            return None
        before = len(change.before)
        if is_own_resize(job, len(change.after), before=before, now=self.view.now):
            return None
        nodes = (self.view.nodes.get(slot.node) for slot in change.before)
        return job if all(node and not node.is_draining for node in nodes) else None
