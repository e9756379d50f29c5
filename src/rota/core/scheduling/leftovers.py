"""Rules that change the targets of policies that declare `shares_leftovers`. The targets of other
policies are final.

Within a pool, elastic jobs shrink towards their minimum before a new job has to wait. A job that
has waited too long reserves the GPUs that are expected to become free first; until then, only jobs
that end in time, or that leave enough GPUs, may start before it. After all pools are sized, unused
GPUs are distributed one worker at a time, in turns, until no job can grow.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rota.core.estimation.remaining_time import remaining_s
from rota.core.estimation.service_time import service_at
from rota.core.model.job import Job, JobId
from rota.core.scheduling.policy_api import TOLERANCE, Budget, Targets
from rota.core.scheduling.quota import Pool
from rota.core.scheduling.view import View


@dataclass(slots=True)
class Reservation:
    """The reservation of a starving job: enough GPUs at `start_s`, with `spare` GPUs left over."""

    job_id: JobId
    start_s: float
    spare: float

    def lets_pass(self, end_s: float, gpus: float) -> bool:
        """Whether another job may use this many GPUs until `end_s`. A positive answer consumes
        spare GPUs. If the start is unknown, no job ends in time."""
        if math.isfinite(self.start_s) and end_s <= self.start_s:
            return True
        if gpus > self.spare + TOLERANCE:
            return False
        self.spare -= gpus
        return True


@dataclass(frozen=True, slots=True)
class _Runner:
    """A job with its size."""

    gpu_type: str
    job: Job
    workers: int


@dataclass(slots=True)
class Leftovers:
    """Applies the rules during one sizing of all pools. Pools come in the order of their
    priority."""

    view: View
    reservations: dict[str, Reservation] = field(default_factory=dict[str, Reservation])
    _sized: list[_Runner] = field(default_factory=list[_Runner])

    def settle(self, pool: Pool, targets: Targets, *, budget: Budget) -> None:
        """Change the targets and the budget of one pool."""
        _shrink_for_newcomers(pool.jobs, targets, budget=budget)
        reservation = self.reservations.get(pool.gpu_type)
        if reservation is not None:
            self._hold_back(pool.jobs, targets, budget=budget, reservation=reservation)
        else:
            self._reserve(pool, targets, budget=budget)
        self._sized += self._runners(pool, targets)

    def offer(self, targets: Targets, budgets: Mapping[str, Budget]) -> None:
        """Give one more worker at a time to all jobs that can grow, in turns, until none can."""
        growing = self._sized
        while growing:
            growing = [each for each in growing if self._grows(each, targets, budgets=budgets)]

    def _grows(self, runner: _Runner, targets: Targets, *, budgets: Mapping[str, Budget]) -> bool:
        job, budget = runner.job, budgets[runner.gpu_type]
        workers = targets[job.id] + 1
        if workers > budget.limit(job) or not budget.affords(job, 1):
            return False
        reservation = self.reservations.get(runner.gpu_type)
        if reservation is not None:
            end_s = self._end_s(job, workers)
            if not reservation.lets_pass(end_s, budget.cost(job)):
                return False
        budget.grant(job, 1)
        targets[job.id] = workers
        return True

    def _reserve(self, pool: Pool, targets: Targets, *, budget: Budget) -> None:
        """Reserve for the first starving job. New jobs behind it may be held back; if that frees
        enough GPUs, the starving job starts at once."""
        places = (
            i for i, job in enumerate(pool.jobs) if self._starves(job, targets, budget=budget)
        )
        place = next(places, None)
        if place is None:
            return
        job, behind = pool.jobs[place], pool.jobs[place + 1 :]
        new = [each for each in behind if self._is_new(each, targets)]
        free = budget.free + sum(targets[each.id] * budget.cost(each) for each in new)
        new_ids = {each.id for each in new}
        runners = [runner for runner in self._sized if runner.gpu_type == pool.gpu_type]
        runners += [each for each in self._runners(pool, targets) if each.job.id not in new_ids]
        reservation = self._promise(job, runners, free=free, budget=budget)
        self._hold_back(new, targets, budget=budget, reservation=reservation)
        if reservation.start_s <= self.view.now and budget.grant(job, job.spec.min_workers):
            targets[job.id] = job.spec.min_workers
        else:
            self.reservations[pool.gpu_type] = reservation

    def _starves(self, job: Job, targets: Targets, *, budget: Budget) -> bool:
        if job.id in targets or budget.limit(job) < job.spec.min_workers:
            return False
        waited_s = service_at(job, self.view.now).last_waiting_s
        return waited_s >= self.view.rules.starvation_after_s

    def _promise(
        self, job: Job, runners: Iterable[_Runner], *, free: float, budget: Budget
    ) -> Reservation:
        need = job.spec.min_workers * budget.cost(job)
        if free + TOLERANCE >= need:
            return Reservation(job.id, self.view.now, free - need)
        ends = [(self._end_s(each.job, each.workers), each.job.id, each) for each in runners]
        for end_s, _, runner in sorted(ends, key=lambda entry: entry[:2]):
            free += runner.workers * budget.cost(runner.job)
            if free + TOLERANCE >= need:
                return Reservation(job.id, end_s, free - need)
        return Reservation(job.id, math.inf, 0.0)

    def _runners(self, pool: Pool, targets: Targets) -> list[_Runner]:
        return [
            _Runner(pool.gpu_type, job, targets[job.id]) for job in pool.jobs if job.id in targets
        ]

    def _hold_back(
        self, jobs: Iterable[Job], targets: Targets, *, budget: Budget, reservation: Reservation
    ) -> None:
        for job in jobs:
            if not self._is_new(job, targets):
                continue
            workers = targets[job.id]
            if not reservation.lets_pass(self._end_s(job, workers), workers * budget.cost(job)):
                del targets[job.id]
                budget.refund(job, workers)

    def _is_new(self, job: Job, targets: Targets) -> bool:
        return job.id in targets and job.id not in self.view.planned

    def _end_s(self, job: Job, workers: int) -> float:
        return self.view.now + remaining_s(job, self.view.now, workers=workers)


def _shrink_for_newcomers(jobs: Iterable[Job], targets: Targets, *, budget: Budget) -> None:
    """Shrink jobs above their minimum, the largest surplus first, until the minimum of each new job
    fits."""
    jobs = tuple(jobs)
    extras = [
        (-(targets[job.id] - job.spec.min_workers) * budget.cost(job), -place, job)
        for place, job in enumerate(jobs)
        if targets.get(job.id, 0) > job.spec.min_workers
    ]
    heapq.heapify(extras)
    extra = -sum(entry[0] for entry in extras)
    for newcomer in jobs:
        least = newcomer.spec.min_workers
        if newcomer.id in targets or budget.limit(newcomer) < least:
            continue
        if least * budget.cost(newcomer) > budget.free + extra + TOLERANCE:
            continue
        while extras and not budget.affords(newcomer, least):
            negated, place, job = heapq.heappop(extras)
            cost = budget.cost(job)
            targets[job.id] -= 1
            budget.refund(job, 1)
            extra -= cost
            if targets[job.id] > job.spec.min_workers:
                heapq.heappush(extras, (negated + cost, place, job))
        if budget.grant(newcomer, least):
            targets[newcomer.id] = least
