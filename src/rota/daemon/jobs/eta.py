"""Progress of a job, and its expected end."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rota.core.estimation.forecast import JobForecast
from rota.core.estimation.remaining_time import finish, remaining_s
from rota.core.model.job import Job, Queued, Running, Starting

LONGEST_ETA_S = 20 * 365 * 86400.0
"""An expected end further away is not shown."""


@dataclass(frozen=True, slots=True)
class JobEta:
    """The fields of `JobView`; None: unknown."""

    progress: float | None = None
    remaining_s: float | None = None
    finish_s: float | None = None
    finish_error: float | None = None


def job_eta(job: Job, now: float, *, expected: JobForecast | None) -> JobEta:
    """`expected` is the forecast of a queued job."""
    progress = progress_of(job)
    left_s, error = _remaining_and_error(job, now, expected=expected)
    if not left_s < LONGEST_ETA_S:
        return JobEta(progress)
    return JobEta(progress, round(left_s, 3), round(now + left_s, 3), round(error, 4))


def _remaining_and_error(
    job: Job, now: float, *, expected: JobForecast | None
) -> tuple[float, float]:
    """Seconds until the end, and their relative error."""
    match job.phase:
        case Running():
            end = finish(job, now)
            if end is None:
                return math.inf, 0.0
            if end.remaining_s <= 0:
                # Overdue: expect the same delay once more.
                return end.error_s, 1.0
            return end.remaining_s, end.error_s / end.remaining_s
        case Starting():
            return remaining_s(job, now, workers=job.units), job.speed.error
        case Queued() if expected is not None:
            return max(0.0, expected.finish_s - now), expected.error
        case _:
            return math.inf, 0.0


def progress_of(job: Job) -> float | None:
    """The reported share of epochs done; None if the number of epochs is unknown."""
    if not has_reported(job) or not job.epochs_done <= job.epochs < math.inf:
        return None
    return round(job.epochs_done / job.epochs, 4)


def has_reported(job: Job) -> bool:
    return job.epochs_done > 0 or job.epochs_total is not None
