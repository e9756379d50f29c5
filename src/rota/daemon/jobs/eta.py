"""How far a job is, and when it will be over."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rota.core.forecast import Expected
from rota.core.model import Job, Queued, Running, Starting
from rota.core.progress import finish, remaining_s

FAR_S = 20 * 365 * 86400.0
"""An end that is further away is as good as none."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """As in the view of a job; what cannot be told is None."""

    progress: float | None = None
    remaining_s: float | None = None
    finish_s: float | None = None
    finish_error: float | None = None


def outlook(job: Job, now: float, *, expected: Expected | None) -> Outlook:
    """`expected` is what a forecast says of a job that does not run yet."""
    progress = progress_of(job)
    left_s, error = _ahead(job, now, expected=expected)
    if not left_s < FAR_S:
        return Outlook(progress)
    return Outlook(progress, round(left_s, 3), round(now + left_s, 3), round(error, 4))


def _ahead(job: Job, now: float, *, expected: Expected | None) -> tuple[float, float]:
    """Seconds until the end, and their relative error."""
    match job.phase:
        case Running():
            end = finish(job, now)
            if end is None:
                return math.inf, 0.0
            if end.remaining_s <= 0:
                # Overdue: it may take as long again as it is late.
                return end.error_s, 1.0
            return end.remaining_s, end.error_s / end.remaining_s
        case Starting():
            return remaining_s(job, now, workers=len(job.allocation)), job.speed.error
        case Queued() if expected is not None:
            return max(0.0, expected.finish_s - now), expected.error
        case _:
            return math.inf, 0.0


def progress_of(job: Job) -> float | None:
    """The part that is done, as it was reported; None where nobody knows how much there is."""
    if not has_reported(job) or not job.epochs_done <= job.epochs < math.inf:
        return None
    return round(job.epochs_done / job.epochs, 4)


def has_reported(job: Job) -> bool:
    return job.epochs_done > 0 or job.epochs_total is not None
