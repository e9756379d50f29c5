"""The greedy pass that every ordered policy starts with, and growth in turns.

The pass goes down the list of jobs and grants a size to each job that fits. A job that does not fit
is skipped, and a smaller job further down may still get GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rota.core.model.job import Job, JobSpec
from rota.core.scheduling.policy_api import Budget, Targets


def grant_in_order(
    jobs: Iterable[Job], budget: Budget, *, wanted: Callable[[JobSpec], int]
) -> Targets:
    """Give each job its wanted size, or its limit if that is lower, or nothing. Most queues are
    longer than the budget, so jobs with GPUs are skipped quickly when it is spent."""
    targets: Targets = {}
    is_spent = budget.is_spent
    for job in jobs:
        if is_spent and job.spec.gpus:
            continue
        workers = min(wanted(job.spec), budget.limit(job))
        if workers >= job.spec.min_workers and budget.grant(job, workers):
            targets[job.id] = workers
            is_spent = budget.is_spent
    return targets


def at_minimum(spec: JobSpec) -> int:
    return spec.min_workers


def as_requested(spec: JobSpec) -> int:
    return spec.requested_workers


def grow_in_turns(jobs: Iterable[Job], targets: Targets, *, budget: Budget) -> None:
    """Give one more worker to each running job, in the given order, in turns.

    A job drops out when it reaches its limit or the budget cannot pay, so the work is one step for
    each granted worker and one for each job.
    """
    payable = (job for job in jobs if not job.spec.gpus) if budget.is_spent else jobs
    growing = [job for job in payable if 0 < targets.get(job.id, 0) < budget.limit(job)]
    while growing:
        growing = [job for job in growing if _grow(job, targets, budget=budget)]


def _grow(job: Job, targets: Targets, *, budget: Budget) -> bool:
    """Add a worker if the budget allows. Returns whether the job can grow further."""
    if not budget.grant(job, 1):
        return False
    targets[job.id] += 1
    return targets[job.id] < budget.limit(job)
