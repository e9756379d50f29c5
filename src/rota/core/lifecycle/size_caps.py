"""Caps on a job's size: undoes a growth that was slower, and prevents it for a while.

The first epoch measured at a new size shows whether the growth paid. It did not pay if a smaller
size was faster by more than the errors of both measurements, and if the remaining work repays the
cost of the shrink. Pure functions of one job.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from rota.core.estimation.epoch_samples import EpochStats
from rota.core.estimation.speed_model import MeasuredSize
from rota.core.explain.reasons import DoesNotGrow, Pinned, Reason
from rota.core.model.allocation import n_nodes
from rota.core.model.job import Job, Running, SizeCap

CAP_S = 1800.0
"""How long a cap lasts."""


def capped(job: Job, workers: int, *, why: str, now: float) -> Job:
    """The job with its size limited to `workers` for a while."""
    return replace(job, cap=SizeCap(max(workers, job.spec.min_workers), now + CAP_S, why))


def cap_of(job: Job, now: float) -> int | None:
    """The job's current cap. A size that its owner pinned overrides the cap."""
    if job.cap is None or job.cap.until_s <= now or job.pinned_workers is not None:
        return None
    return job.cap.workers


def next_cap_ends_s(jobs: Iterable[Job], now: float) -> float:
    """When the first cap of these jobs ends."""
    caps = (job.cap.until_s for job in jobs if job.cap is not None and job.cap.until_s > now)
    return min(caps, default=math.inf)


def is_own_resize(job: Job, workers: int, *, before: int, now: float) -> bool:
    """Whether a change to `workers` follows from the job's own pin or cap, not from other jobs."""
    is_undone = workers < before and workers == cap_of(job, now)
    return is_undone or (workers != before and workers == job.pinned_workers)


def size_reason(job: Job, workers: int, *, now: float) -> Reason | None:
    """Why the job gets `workers` workers, if the policy did not choose the size."""
    if workers == job.pinned_workers:
        return Pinned(job.spec.gpus_of(workers))
    if job.cap is not None and workers == cap_of(job, now):
        return DoesNotGrow(job.spec.gpus_of(workers), job.cap.why)
    return None


def capped_if_slower(job: Job, now: float) -> Job:
    """The job after an epoch was measured; capped if a smaller size was faster."""
    phase = job.phase
    if not isinstance(phase, Running) or phase.joining or cap_of(job, now) is not None:
        return job
    held = phase.allocation
    here = job.speed.measured.get(MeasuredSize(job.units, n_nodes(held) > 1))
    smaller = _best_smaller(job, job.units)
    if here is None or smaller is None:
        return job
    size, sample = smaller
    gain_s = (job.epochs - job.epochs_done) * (here.mean_s - sample.mean_s)
    if not _is_slower(here, sample) or gain_s <= _shrink_cost_s(job):
        return job
    why = (
        f"an epoch took {here.mean_s:.3g} s on {job.spec.gpus_of(job.units)} GPUs"
        f" and {sample.mean_s:.3g} s on {job.spec.gpus_of(size.workers)}"
    )
    return capped(job, size.workers, why=why, now=now)


def _best_smaller(job: Job, workers: int) -> tuple[MeasuredSize, EpochStats] | None:
    smaller = (
        (size, sample)
        for size, sample in job.speed.measured.items()
        if job.spec.min_workers <= size.workers < workers
    )
    return min(smaller, key=lambda each: each[1].mean_s, default=None)


def _is_slower(one: EpochStats, other: EpochStats) -> bool:
    return one.mean_s * (1 - one.error) > other.mean_s * (1 + other.error)


def _shrink_cost_s(job: Job) -> float:
    if job.spec.mode.resizes_in_place:
        return job.resize_s or 0.0
    return (job.start_s or 0.0) + job.stop_s
