"""How long a job has run and waited at a moment, and how much work a stop loses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rota.core.model.allocation import Allocation, n_gpus
from rota.core.model.job import Ended, Held, Job, Queued, Running, ServiceTime

NEGLIGIBLE = 1e-9


def service_at(job: Job, now: float) -> ServiceTime:
    """The job's service time brought up to `now`."""
    service = job.service
    elapsed = now - service.as_of_s
    if elapsed <= 0 or isinstance(job.phase, Held | Ended):
        return replace(service, as_of_s=now)
    if isinstance(job.phase, Queued):
        return replace(
            service,
            as_of_s=now,
            waiting_s=service.waiting_s + elapsed,
            last_waiting_s=service.last_waiting_s + elapsed,
        )
    gpu_s = elapsed * n_gpus(job.allocation)
    return replace(
        service,
        as_of_s=now,
        running_s=service.running_s + elapsed,
        gpu_s=service.gpu_s + gpu_s,
        last_running_s=service.last_running_s + elapsed,
        last_gpu_s=service.last_gpu_s + gpu_s,
    )


@dataclass(frozen=True, slots=True)
class LostWork:
    """Work that was done but not saved."""

    epochs: float
    seconds: float


def lost_work(job: Job) -> LostWork | None:
    """The work that is lost if the attempt ends now; None if nothing is. The speed model gives its
    duration; without measurements, the duration is the time since the last save."""
    epochs = job.epochs_done - job.epochs_saved
    if not job.is_active or epochs <= NEGLIGIBLE:
        return None
    seconds = epochs * job.speed.epoch_s(job.units)
    if not math.isfinite(seconds):
        seconds = max(0.0, job.progress_at_s - job.saved_at_s)
    return LostWork(epochs, seconds)


def with_lost_work(reason: str, job: Job) -> str:
    """The reason for the end of an attempt, with the lost work appended."""
    lost = lost_work(job)
    if lost is None:
        return reason
    n_epochs = _brief(lost.epochs)
    words = f"{n_epochs} {'epoch' if n_epochs == '1' else 'epochs'} ({_brief(lost.seconds)} s) lost"
    return f"{reason}; {words}" if reason else words


def _brief(amount: float) -> str:
    return f"{amount:.2g}" if amount < 10 else f"{amount:.0f}"


def rolled_back(job: Job) -> Job:
    """The job after an attempt without success: work that was not saved must be done again."""
    lost = lost_work(job)
    if lost is None:
        return job
    return replace(job, epochs_done=job.epochs_saved, lost_s=job.lost_s + lost.seconds)


def as_if_holding(job: Job, allocation: Allocation, *, now: float) -> Job:
    """The job as if it started to run in this allocation now."""
    service, phase = job.service, job.phase
    goes_on = job.is_active or (isinstance(phase, Queued) and phase.is_resizing)
    used_gpu_s = n_gpus(job.allocation) * (now - service.as_of_s) if job.is_active else 0.0
    last_gpu_s = service.last_gpu_s + used_gpu_s if goes_on else 0.0
    return replace(
        job,
        phase=Running(now, allocation, tuple(range(len(allocation)))),
        service=replace(service, as_of_s=now, last_gpu_s=last_gpu_s),
    )
