"""Two feedback queues: the core of Tiresias-L, shared by `tiresias` and `elastic-tiresias`.

A job starts in queue 0. A run that has used its share of GPU time moves it down; a wait that is
long for what the job last ran moves it up again. Nothing needs to be known of a job's length.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rota.core.model import Job, Queued, n_gpus
from rota.core.policy import NEVER

LAST_QUEUE = 1

TOLERANCE_S = 1e-5
"""A clock that jumps to the moment of a change must find it due there, whatever was rounded."""


def queue_of(job: Job) -> int:
    """The queue a job is recorded in; a number beyond the last queue means the last."""
    return min(max(job.queue, 0), LAST_QUEUE)


def in_queue_order(jobs: Iterable[Job]) -> list[Job]:
    """Queue by queue; inside one, who started first comes first and who never did comes last.

    The first start, not the submission, keeps a late starter from pushing out those who run
    (Gu et al., NSDI 2019, section 3.3). Equals keep the order they came in.
    """
    return sorted(jobs, key=lambda job: (queue_of(job), job.first_started_s))


class Thresholds(Protocol):
    """When a job goes down (`threshold_gpu_s`) and up (`knob`)."""

    @property
    def threshold_gpu_s(self) -> float: ...

    @property
    def knob(self) -> float: ...


def queue_at(thresholds: Thresholds, job: Job, *, now: float) -> int:
    queue = queue_of(job)
    if _due_s(thresholds, job, queue=queue) > now + TOLERANCE_S:
        return queue
    return 0 if isinstance(job.phase, Queued) else queue + 1


def requeues_at(thresholds: Thresholds, job: Job, *, now: float) -> float:
    queue = queue_of(job)
    due_s = _due_s(thresholds, job, queue=queue)
    return due_s if due_s > now + TOLERANCE_S and queue == job.queue else now


def _due_s(thresholds: Thresholds, job: Job, *, queue: int) -> float:
    """When the job changes its queue if it goes on as it does now.

    Only a wait promotes, and only a job that has run: its last run is the measure. Only holding
    GPUs demotes.
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
