"""The walk that every ordered policy starts with: down the list, a size for each that fits.

A job that does not fit is passed by, and a smaller one further down may still get GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rota.core.model import Job, JobSpec
from rota.core.policy import Budget, Targets


def grant_in_order(
    jobs: Iterable[Job], budget: Budget, *, wanted: Callable[[JobSpec], int]
) -> Targets:
    """Give each job the size it wants, or its limit if that is less, or nothing at all."""
    targets: Targets = {}
    for job in jobs:
        workers = min(wanted(job.spec), budget.limit(job))
        if workers >= job.spec.min_workers and budget.grant(job, workers):
            targets[job.id] = workers
    return targets


def at_minimum(spec: JobSpec) -> int:
    return spec.min_workers


def as_requested(spec: JobSpec) -> int:
    return spec.requested_workers
