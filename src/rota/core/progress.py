"""What can be said of a job at a moment: time it used, work it did, work that is left."""

from __future__ import annotations

from dataclasses import replace

from rota.core.model import Ended, Held, Job, Queued, Running, Service, n_gpus


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
    return min(job.spec.epochs, job.epochs_done + max(0.0, now - since) / epoch_s)


def remaining_s(job: Job, now: float, *, workers: int = 1) -> float:
    """Seconds until the job is done on so many workers; infinite where nothing is known."""
    epochs_left = job.spec.epochs - epochs_done_at(job, now)
    return epochs_left * job.speed.epoch_s(workers) if epochs_left > 0 else 0.0
