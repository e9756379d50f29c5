"""What can be said of a job at a moment: time it used, work it did, work that is left."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rota.core.model import Ended, Held, Job, Queued, Running, Service, n_gpus, n_nodes
from rota.core.speed import Size

NEGLIGIBLE = 1e-9


def service_at(job: Job, now: float) -> Service:
    """The job's time accounts brought up to `now`."""
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


def epochs_done_at(job: Job, now: float) -> float:
    """Reported epochs, carried on at the modelled speed since the last report."""
    if not isinstance(job.phase, Running):
        return job.epochs_done
    since = max(job.progress_at_s, job.phase.since_s)
    epoch_s = job.speed.epoch_s(len(job.phase.allocation))
    return min(job.epochs, job.epochs_done + max(0.0, now - since) / epoch_s)


def remaining_s(job: Job, now: float, *, workers: int = 1) -> float:
    """Seconds until the job is done on so many workers; infinite where nothing is known."""
    epochs_left = job.epochs - epochs_done_at(job, now)
    return epochs_left * job.speed.epoch_s(workers) if epochs_left > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Finish:
    """When a job that runs will be done if it goes on as it is, give or take `error_s`."""

    at_s: float
    remaining_s: float
    error_s: float


def finish(job: Job, now: float, *, epochs_done: float | None = None) -> Finish | None:
    """`epochs_done`, with the part of the epoch under way, where somebody has just heard; else
    the last report is carried on. None if the job does not run, or nobody knows its speed or how
    much it has to do. A job that is overdue is as unsure as it is late."""
    if not isinstance(job.phase, Running):
        return None
    held = job.phase.allocation
    epoch_s = job.speed.epoch_s(len(held))
    if math.isinf(epoch_s) or math.isinf(job.epochs):
        return None
    since_s, done = max(job.progress_at_s, job.phase.since_s), job.epochs_done
    if epochs_done is not None:
        since_s, done = now, epochs_done
    due_s = since_s + max(0.0, job.epochs - done) * epoch_s
    left = max(0.0, due_s - now) / epoch_s
    sample = job.speed.measured.get(Size(len(held), n_nodes(held) > 1))
    of_the_mean, of_each = (sample.error, sample.spread) if sample else (job.speed.error, 0.0)
    error_s = epoch_s * math.hypot(left * of_the_mean, math.sqrt(left) * of_each)
    return Finish(max(now, due_s), left * epoch_s, max(error_s, now - due_s))


@dataclass(frozen=True, slots=True)
class Loss:
    """Work that was done and not saved."""

    epochs: float
    seconds: float


def loss(job: Job) -> Loss | None:
    """What is lost if the attempt ends as it is; None if nothing is. Its time is the model's, or
    that since the last save where nothing was measured yet."""
    epochs = job.epochs_done - job.epochs_saved
    if not job.is_active or epochs <= NEGLIGIBLE:
        return None
    seconds = epochs * job.speed.epoch_s(len(job.allocation))
    if not math.isfinite(seconds):
        seconds = max(0.0, job.progress_at_s - job.saved_at_s)
    return Loss(epochs, seconds)


def with_loss(reason: str, job: Job) -> str:
    """The reason for the end of an attempt, and what it cost."""
    lost = loss(job)
    if lost is None:
        return reason
    n_epochs = _brief(lost.epochs)
    words = f"{n_epochs} {'epoch' if n_epochs == '1' else 'epochs'} ({_brief(lost.seconds)} s) lost"
    return f"{reason}; {words}" if reason else words


def _brief(amount: float) -> str:
    return f"{amount:.2g}" if amount < 10 else f"{amount:.0f}"


def rolled_back(job: Job) -> Job:
    """The job when an attempt ends without success: what was not saved has to be done again."""
    lost = loss(job)
    if lost is None:
        return job
    return replace(job, epochs_done=job.epochs_saved, lost_s=job.lost_s + lost.seconds)
