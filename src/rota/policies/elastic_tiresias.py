"""Least attained service in two queues, with growth where it gains most."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rota.core.model.job import Job
from rota.core.scheduling.policy_api import Budget, Targets
from rota.policies import multilevel_queue
from rota.policies.greedy import as_requested, grant_in_order
from rota.policies.multilevel_queue import in_queue_order, queue_of
from rota.policies.parameters import above, at_least, check


@dataclass(frozen=True, slots=True)
class ElasticTiresias:
    """Starts like `tiresias`, then gives the remaining GPUs, one worker at a time, to the job with
    the largest gain.

    If more than `compaction` jobs wait, the jobs of the second queue are first shrunk to their
    minimum. E-Tiresias of Wu et al., "Elastic Deep Learning in Multi-Tenant GPU Clusters", TPDS
    2021, as Voda implements it.
    """

    threshold_gpu_s: float = field(default=3600.0, metadata=above(0))
    knob: float = field(default=8.0, metadata=above(0))
    compaction: int = field(default=10, metadata=at_least(0))

    def __post_init__(self) -> None:
        check(self)

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        targets = grant_in_order(in_queue_order(jobs), budget, wanted=as_requested)
        n_pending = len(jobs) - len(targets)
        if n_pending > self.compaction:
            _compact(jobs, targets, budget=budget)
        _grow_by_gain(jobs, targets, budget=budget)
        return targets

    def queue_at(self, job: Job, now: float) -> int:
        return multilevel_queue.queue_at(self, job, now=now)

    def requeues_at(self, job: Job, now: float) -> float:
        return multilevel_queue.requeues_at(self, job, now=now)


def _compact(jobs: Iterable[Job], targets: Targets, *, budget: Budget) -> None:
    """Shrink the running jobs below the first queue to their minimum."""
    for job in jobs:
        if queue_of(job) > 0 and job.id in targets:
            budget.refund(job, targets[job.id] - job.spec.min_workers)
            targets[job.id] = job.spec.min_workers


def _grow_by_gain(jobs: Sequence[Job], targets: Targets, *, budget: Budget) -> None:
    """Grow the job with the largest gain, until no job gains or no GPU is left.

    The original sorts a list before each grant: stably by queue, then stably by gain. Two jobs that
    are equal in both keep their order of the turn before, in which the job that was served last
    came first. So the order is gain, queue, latest turn, submission, and a heap can use it as its
    key.
    """
    heap = [
        (-_gain(job, targets.get(job.id, 0)), queue_of(job), 0, place)
        for place, job in enumerate(jobs)
        if _may_grow(job, targets.get(job.id, 0), budget=budget)
    ]
    heapq.heapify(heap)
    turn = 0
    while heap and heap[0][0] < 0 and not budget.is_spent:
        _, queue, _, place = heapq.heappop(heap)
        job = jobs[place]
        held = targets.get(job.id, 0)
        more = 1 if held else job.spec.min_workers
        if not budget.grant(job, more):
            continue
        held += more
        targets[job.id] = held
        turn += 1
        if held < budget.limit(job):
            heapq.heappush(heap, (-_gain(job, held), queue, -turn, place))


def _may_grow(job: Job, held: int, *, budget: Budget) -> bool:
    """Whether the job can grow. A job whose minimum exceeds the remaining GPUs does not grow, even
    if it runs."""
    least = job.spec.min_workers
    limit = budget.limit(job)
    return held < limit and least <= limit and budget.affords(job, least)


def _gain(job: Job, held: int) -> float:
    """The speed-up that the next worker adds; for a waiting job, the mean over its minimum."""
    if held:
        return job.speed.speedup(held + 1) - job.speed.speedup(held)
    least = job.spec.min_workers
    return job.speed.speedup(least) / least
