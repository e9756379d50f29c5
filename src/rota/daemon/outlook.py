"""How far a job is, when it will be over, and what would tell more about it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rota.core.forecast import Expected
from rota.core.model import Ended, Job, Queued, Running, Starting
from rota.core.progress import epochs_done_at, remaining_s

FAR_S = 20 * 365 * 86400.0
"""An end that is further away is as good as none."""
UNSAVED_S = 600.0
"""Work that is worth a word to whoever would lose it."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """As in the view of a job; what cannot be told is None."""

    progress: float | None = None
    remaining_s: float | None = None
    finish_s: float | None = None
    finish_error: float | None = None


def outlook(job: Job, now: float, *, expected: Expected | None) -> Outlook:
    """`expected` is what a forecast says of a job that waits."""
    progress = progress_of(job)
    left_s, error = math.inf, job.speed.error
    if isinstance(job.phase, Running | Starting):
        left_s = remaining_s(job, now, workers=len(job.allocation))
    elif isinstance(job.phase, Queued) and expected is not None:
        left_s, error = expected.finish_s - now, expected.error
    if not left_s < FAR_S:
        return Outlook(progress)
    left_s = max(0.0, left_s)
    return Outlook(progress, round(left_s, 3), round(now + left_s, 3), round(error, 4))


def progress_of(job: Job) -> float | None:
    """The part that is done, as it was reported. A job that counts further than it said it would
    has said nothing."""
    if not has_reported(job) or not job.epochs > 0 or job.epochs_done > job.epochs:
        return None
    return round(job.epochs_done / job.epochs, 4)


def has_reported(job: Job) -> bool:
    return job.epochs_done > 0 or job.epochs_total is not None


def hint(job: Job, now: float, *, slow: tuple[int, ...], reports: bool) -> str:
    """What the owner could do, the most useful first. `slow` are workers that hold others up;
    `reports` is whether its program speaks to us at all."""
    if isinstance(job.phase, Ended):
        return ""
    if slow:
        which = ", ".join(map(str, slow))
        holds = "holds" if len(slow) == 1 else "hold"
        words = "worker" if len(slow) == 1 else "workers"
        return f"{words} {which} {holds} the others up: look at the GPUs, the node and the data"
    if isinstance(job.phase, Running) and unsaved_s(job, now) > UNSAVED_S:
        return "nothing was saved for long, and a stop would lose it: save more often"
    if math.isinf(job.speed.one_s):
        return (
            "nobody knows how long it takes: submit with --hours, or report epochs from its program"
            if not reports
            else "its end can be told after its first epoch"
        )
    return ""


def unsaved_s(job: Job, now: float) -> float:
    """How much work a stop would lose by now."""
    if not has_reported(job):
        return 0.0
    epochs = epochs_done_at(job, now) - job.epochs_saved
    seconds = epochs * job.speed.epoch_s(len(job.allocation))
    return seconds if math.isfinite(seconds) else 0.0
