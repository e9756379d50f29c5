"""What a program's report of its progress changes about its job. Pure; called by `life`.

What makes no sense is dropped alone: a report may be right about its epochs and wrong about what
it saved.
"""

from __future__ import annotations

import math
from dataclasses import replace

from rota.core.events import ProgressReported
from rota.core.growth import judged
from rota.core.model import Job, Running, Stopping, n_nodes
from rota.core.speed import Size, SpeedModel, learn

MOST_EPOCHS = 1e12
"""Beyond it, sums and quotients are no longer numbers."""


def progressed(job: Job, event: ProgressReported, *, now: float) -> Job | None:
    """The job after a report; None if it is nonsense: not finite, backwards, beyond the end. Only
    the first one of an attempt may fall behind: the newest checkpoint may have been damaged."""
    is_first = job.reported_in < job.attempt
    done, total = event.epochs_done, _total(job, event)
    least = 0.0 if is_first else job.epochs_done
    if not (math.isfinite(done) and least <= done <= total):
        return None
    if is_first:
        job = _begun_at(job, done)
    job = _told_total(job, total)
    saved = _saved(job, event)
    after = replace(
        job,
        epochs_done=done,
        epochs_saved=saved,
        saved_at_s=now if saved > job.epochs_saved else job.saved_at_s,
        hears=job.hears or (event.hears and not isinstance(job.phase, Stopping)),
        reported_in=job.attempt,
        progress_at_s=now,
        speed=_learnt(job, event),
        memory_bytes_seen=max(job.memory_bytes_seen, event.memory_bytes),
        deaths=job.deaths if done <= job.epochs_done else 0,
        start_s=_start_s(job, event, now=now),
        save_s=job.save_s if event.save_s is None else event.save_s,
        load_s=job.load_s if event.load_s is None else event.load_s,
    )
    return judged(after, now) if event.epoch_s is not None else after


def _total(job: Job, event: ProgressReported) -> float:
    total = event.epochs_total
    if total is None or not (0 < total <= MOST_EPOCHS or total == math.inf):
        return job.epochs
    return total


def _begun_at(job: Job, done: float) -> Job:
    """An attempt that begins before what was saved has to do the difference once more."""
    again = job.epochs_saved - done
    if again <= 0:
        return job
    again_s = again * job.speed.epoch_s(len(job.allocation))
    lost_s = job.lost_s + (again_s if math.isfinite(again_s) else 0.0)
    return replace(job, epochs_saved=done, lost_s=lost_s)


def _told_total(job: Job, total: float) -> Job:
    """A user's estimate is of the whole job: with another number of epochs, each takes another
    part of it. Where nobody knows how many there are, it stays what it was."""
    if total == job.epochs:
        return job
    speed = job.speed
    before = job.spec.epochs if math.isinf(job.epochs) else job.epochs
    if not speed.measured and math.isfinite(total):
        speed = replace(speed, one_s=speed.one_s * before / total)
    return replace(job, epochs_total=total, speed=speed)


def _saved(job: Job, event: ProgressReported) -> float:
    done, saved = event.epochs_done, event.saved
    if saved is None:
        return max(job.epochs_saved, float(math.floor(done)))
    return saved if job.epochs_saved <= saved <= done else job.epochs_saved


def _learnt(job: Job, event: ProgressReported) -> SpeedModel:
    if event.epoch_s is None:
        return job.speed
    size = Size(len(job.allocation), n_nodes(job.allocation) > 1)
    return learn(job.speed, size, epoch_s=event.epoch_s, max_workers=job.spec.max_workers)


def _start_s(job: Job, event: ProgressReported, *, now: float) -> float | None:
    """What it costs to start the job again. No program can have taken longer than it is there: a
    job that costs much to disturb is left alone."""
    if event.start_s is None or not isinstance(job.phase, Running):
        return job.start_s
    return max(job.start_s or 0.0, min(event.start_s, now - job.phase.since_s))
