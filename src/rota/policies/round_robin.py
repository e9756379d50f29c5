"""What is left after the minima, dealt out one worker at a time."""

from __future__ import annotations

from collections.abc import Iterable

from rota.core.model import Job
from rota.core.policy import Budget, Targets


def grow_in_turns(jobs: Iterable[Job], targets: Targets, budget: Budget) -> None:
    """Round after round in the given order, one more worker for each job that runs.

    A job leaves the rounds when it is at its limit or can no longer pay, so that the work is one
    step for each worker dealt and one for each job.
    """
    growing = [job for job in jobs if 0 < targets.get(job.id, 0) < budget.limit(job)]
    while growing:
        growing = [job for job in growing if _grow(job, targets, budget)]


def _grow(job: Job, targets: Targets, budget: Budget) -> bool:
    """Add a worker if the budget has it; true if there may be another."""
    if not budget.grant(job, 1):
        return False
    targets[job.id] += 1
    return targets[job.id] < budget.limit(job)
