"""Least attained service in two queues, with growth where it brings most."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rota.core.model import Job
from rota.core.policy import Budget, Targets
from rota.policies import feedback
from rota.policies.feedback import in_queue_order, queue_of
from rota.policies.parameters import above, at_least, check
from rota.policies.walk import as_requested, grant_in_order


@dataclass(frozen=True, slots=True)
class ElasticTiresias:
    """Starts as `tiresias`; then what is left goes, worker by worker, where it speeds up most.

    If more than `compaction` jobs wait, those of the second queue are first cut to their minimum.
    E-Tiresias of Wu et al., "Elastic Deep Learning in Multi-Tenant GPU Clusters", TPDS 2021, as
    Voda builds it.
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
        return feedback.queue_at(self, job, now=now)

    def requeues_at(self, job: Job, now: float) -> float:
        return feedback.requeues_at(self, job, now=now)


def _compact(jobs: Iterable[Job], targets: Targets, *, budget: Budget) -> None:
    """Cut the running jobs below the first queue to their minimum."""
    for job in jobs:
        if queue_of(job) > 0 and job.id in targets:
            budget.refund(job, targets[job.id] - job.spec.min_workers)
            targets[job.id] = job.spec.min_workers


def _grow_by_gain(jobs: Sequence[Job], targets: Targets, *, budget: Budget) -> None:
    """The largest gain first, until nothing gains or nothing is left.

    The rule is a list, sorted anew before each grant: stably by queue, then stably by gain. Two
    jobs equal in both therefore keep their order from the turn before, in which the one served
    last stood at the front. So the order is gain, queue, latest turn, submission: a heap's key.
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
    """A job whose minimum is more than what is left stays as it is, even if it runs."""
    least = job.spec.min_workers
    limit = budget.limit(job)
    return held < limit and least <= limit and budget.affords(job, least)


def _gain(job: Job, held: int) -> float:
    """What the next worker adds to the speed-up; for a waiting job, the mean over its minimum."""
    if held:
        return job.speed.speedup(held + 1) - job.speed.speedup(held)
    least = job.spec.min_workers
    return job.speed.speedup(least) / least
