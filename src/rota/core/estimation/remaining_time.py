"""How much work of a job is done and left at a moment, and when the job will finish."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rota.core.estimation.speed_model import MeasuredSize
from rota.core.model.allocation import n_nodes
from rota.core.model.job import Job, Running


def epochs_done_at(job: Job, now: float) -> float:
    """The epochs done: the last report, extrapolated with the modelled speed."""
    if not isinstance(job.phase, Running):
        return job.epochs_done
    since = max(job.progress_at_s, job.phase.since_s)
    epoch_s = job.speed.epoch_s(job.units)
    return min(job.epochs, job.epochs_done + max(0.0, now - since) / epoch_s)


def remaining_s(job: Job, now: float, *, workers: int = 1) -> float:
    """Seconds until the job is done on `workers` workers; infinite if unknown."""
    epochs_left = job.epochs - epochs_done_at(job, now)
    return epochs_left * job.speed.epoch_s(workers) if epochs_left > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Finish:
    """When a running job will finish at its current size, with an error of `error_s`."""

    at_s: float
    remaining_s: float
    error_s: float


def finish(job: Job, now: float, *, epochs_done: float | None = None) -> Finish | None:
    """When the job will finish; None if it does not run, or if its speed or number of epochs is
    unknown.

    `epochs_done` is a fresh count that includes the current epoch; without it, the last report is
    extrapolated. The error of an overdue job is at least its delay.
    """
    if not isinstance(job.phase, Running):
        return None
    held = job.phase.allocation
    epoch_s = job.speed.epoch_s(job.units)
    if math.isinf(epoch_s) or math.isinf(job.epochs):
        return None
    since_s, done = max(job.progress_at_s, job.phase.since_s), job.epochs_done
    if epochs_done is not None:
        since_s, done = now, epochs_done
    due_s = since_s + max(0.0, job.epochs - done) * epoch_s
    left = max(0.0, due_s - now) / epoch_s
    sample = job.speed.measured.get(MeasuredSize(job.units, n_nodes(held) > 1))
    mean_error, spread = (sample.error, sample.spread) if sample else (job.speed.error, 0.0)
    error_s = epoch_s * math.hypot(left * mean_error, math.sqrt(left) * spread)
    return Finish(max(now, due_s), left * epoch_s, max(error_s, now - due_s))
