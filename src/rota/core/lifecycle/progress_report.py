"""What a progress report of a training program changes about its job.

The values are valid numbers: the parser of reports has dropped the others. Here they are compared
with the job: a report may be right about its epochs and wrong about what was saved. Pure functions
of one job, called by `reducer`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from rota.core.estimation.speed_model import MeasuredSize, SpeedModel, learn
from rota.core.lifecycle.size_caps import capped_if_slower
from rota.core.model.allocation import n_nodes
from rota.core.model.events import ProgressReported
from rota.core.model.job import Job, Running, Stopping


def progressed(job: Job, event: ProgressReported, *, now: float) -> Job | None:
    """The job after a report; None if the report contradicts the job: lower than before, or beyond
    the end. Only the first report of an attempt may be lower, because the newest checkpoint
    may be damaged."""
    is_first = job.reported_in < job.attempt
    done = event.epochs_done
    total = job.epochs if event.epochs_total is None else event.epochs_total
    least = 0.0 if is_first else job.epochs_done
    if not least <= done <= total:
        return None
    if is_first:
        job = _resumed_at(job, done)
    job = _with_total(job, total)
    saved = _saved(job, event)
    after = replace(
        job,
        epochs_done=done,
        epochs_saved=saved,
        saved_at_s=now if saved > job.epochs_saved else job.saved_at_s,
        hears=job.hears or (event.hears and not isinstance(job.phase, Stopping)),
        reported_in=job.attempt,
        progress_at_s=now,
        speed=_learned(job, event),
        memory_bytes_seen=max(job.memory_bytes_seen, event.memory_bytes),
        deaths=job.deaths if done <= job.epochs_done else 0,
        start_s=_start_s(job, event, now=now),
        save_s=job.save_s if event.save_s is None else event.save_s,
        load_s=job.load_s if event.load_s is None else event.load_s,
    )
    return capped_if_slower(after, now) if event.epoch_s is not None else after


def _resumed_at(job: Job, done: float) -> Job:
    """Count the work as lost that an attempt repeats because it starts before the last saved
    epoch."""
    again = job.epochs_saved - done
    if again <= 0:
        return job
    again_s = again * job.speed.epoch_s(job.units)
    lost_s = job.lost_s + (again_s if math.isfinite(again_s) else 0.0)
    return replace(job, epochs_saved=done, lost_s=lost_s)


def _with_total(job: Job, total: float) -> Job:
    """Set the number of epochs. A user's estimate covers the whole job, so the estimated time of
    one epoch changes with the number of epochs. If that number is unknown, the estimate stays."""
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


def _learned(job: Job, event: ProgressReported) -> SpeedModel:
    if event.epoch_s is None:
        return job.speed
    size = MeasuredSize(job.units, n_nodes(job.allocation) > 1)
    return learn(job.speed, size, epoch_s=event.epoch_s, max_workers=job.spec.max_workers)


def _start_s(job: Job, event: ProgressReported, *, now: float) -> float | None:
    """The measured start time, which counts as the cost of the next restart. Limited to the age of
    the workers: otherwise a wrong report could protect a job from preemption."""
    if event.start_s is None or not isinstance(job.phase, Running):
        return job.start_s
    return max(job.start_s or 0.0, min(event.start_s, now - job.phase.since_s))
