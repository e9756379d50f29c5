"""Two feedback queues: the core of Tiresias-L, shared by `tiresias` and `elastic-tiresias`.

A job starts in queue 0. A run that has used its share of GPU time moves it down; a wait that is
long for what the job last ran moves it up again. Nothing needs to be known of a job's length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rota.core.model import Job, Queued, n_gpus
from rota.core.policy import NEVER
from rota.core.progress import service_at

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


@dataclass(frozen=True, slots=True)
class Feedback:
    """When a job goes down (`threshold_gpu_s`) and up (`knob`)."""

    threshold_gpu_s: float
    knob: float

    def queue_at(self, job: Job, now: float) -> int:
        queue = queue_of(job)
        if self._due_in_s(job, now) > TOLERANCE_S:
            return queue
        return 0 if isinstance(job.phase, Queued) else queue + 1

    def requeues_at(self, job: Job, now: float) -> float:
        due_in_s = self._due_in_s(job, now)
        is_due = due_in_s <= TOLERANCE_S or job.queue != queue_of(job)
        return now if is_due else now + due_in_s

    def _due_in_s(self, job: Job, now: float) -> float:
        """Seconds until the job changes its queue if it goes on as it does now."""
        queue = queue_of(job)
        if isinstance(job.phase, Queued):
            return self._promotion_in_s(job, now) if queue > 0 else NEVER
        if job.is_active and queue < LAST_QUEUE:
            return self._demotion_in_s(job, now)
        return NEVER

    def _promotion_in_s(self, job: Job, now: float) -> float:
        """Only a wait promotes, and only a job that has run: its last run is the measure."""
        if not math.isfinite(job.first_started_s):
            return NEVER
        service = service_at(job, now)
        return self.knob * service.last_running_s - service.last_waiting_s

    def _demotion_in_s(self, job: Job, now: float) -> float:
        rate = n_gpus(job.allocation)
        left_gpu_s = self.threshold_gpu_s - service_at(job, now).last_gpu_s
        return left_gpu_s / rate if rate > 0 else NEVER
