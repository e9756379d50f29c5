"""Two feedback queues: the core of Tiresias-L, shared by `tiresias` and `elastic-tiresias`.

A job starts in queue 0. A run that has used a threshold of GPU time moves the job down. A wait that
is long compared with the job's last run moves it up again. The length of a job need not be known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

from rota.core.model.allocation import n_gpus
from rota.core.model.job import Job, Queued

NEVER = math.inf

LAST_QUEUE = 1

TOLERANCE_S = 1e-5
"""A change must be due at the time that was announced for it, despite rounding."""


def queue_of(job: Job) -> int:
    """The job's queue. A number beyond the last queue means the last queue."""
    queue = job.queue
    return queue if 0 <= queue <= LAST_QUEUE else min(max(queue, 0), LAST_QUEUE)


def in_queue_order(jobs: Iterable[Job]) -> list[Job]:
    """The jobs queue by queue; within a queue, by first start, and jobs that never started last.

    The order of first starts, not of submissions, keeps a late starter from displacing running jobs
    (Gu et al., NSDI 2019, section 3.3). Equal jobs keep their order.
    """
    return sorted(jobs, key=lambda job: (queue_of(job), job.first_started_s))


class Thresholds(Protocol):
    """When a job moves down (`threshold_gpu_s`) and up (`knob`)."""

    @property
    def threshold_gpu_s(self) -> float: ...

    @property
    def knob(self) -> float: ...


def queue_at(thresholds: Thresholds, job: Job, *, now: float) -> int:
    """The queue that the job belongs to now."""
    queue = queue_of(job)
    if _due_s(thresholds, job, queue=queue) > now + TOLERANCE_S:
        return queue
    return 0 if isinstance(job.phase, Queued) else queue + 1


def requeues_at(thresholds: Thresholds, job: Job, *, now: float) -> float:
    """When the job changes its queue if nothing else happens; `now` if the change is due."""
    queue = queue_of(job)
    due_s = _due_s(thresholds, job, queue=queue)
    return due_s if due_s > now + TOLERANCE_S and queue == job.queue else now


def _due_s(thresholds: Thresholds, job: Job, *, queue: int) -> float:
    """When the job changes its queue if its state does not change.

    Only a waiting job is promoted, and only if it has run before: its wait is compared with its
    last run. Only a job that holds GPUs is demoted.
    """
    service = job.service
    if isinstance(job.phase, Queued):
        if queue == 0 or job.first_started_s == NEVER:
            return NEVER
        return service.as_of_s + thresholds.knob * service.last_running_s - service.last_waiting_s
    if queue == LAST_QUEUE or not job.is_active:
        return NEVER
    rate = n_gpus(job.allocation)
    left_gpu_s = thresholds.threshold_gpu_s - service.last_gpu_s
    return service.as_of_s + left_gpu_s / rate if rate > 0 else NEVER
