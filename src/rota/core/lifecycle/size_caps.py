"""A growth that did not pay is undone, and not tried again for a while. Pure functions of one job.

Whether it paid is seen when an epoch was measured at the new size: it did not if a smaller size was
faster by more than both may be wrong, and if what is left to do makes up for the way back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from rota.core.model import Cap, Job, Running, n_nodes
from rota.core.reasons import DoesNotGrow, Pinned, Reason
from rota.core.samples import Sample
from rota.core.speed import Size

CAP_S = 1800.0
"""How long a job stays at the size that was better."""


def capped(job: Job, workers: int, *, why: str, now: float) -> Job:
    """The job, held to so many workers for a while."""
    return replace(job, cap=Cap(max(workers, job.spec.min_workers), now + CAP_S, why))


def cap_of(job: Job, now: float) -> int | None:
    """The size that the job is held to now. What its owner wants counts for more."""
    if job.cap is None or job.cap.until_s <= now or job.pinned_workers is not None:
        return None
    return job.cap.workers


def next_cap_ends_s(jobs: Iterable[Job], now: float) -> float:
    """When the first of them may grow again."""
    caps = (job.cap.until_s for job in jobs if job.cap is not None and job.cap.until_s > now)
    return min(caps, default=math.inf)


def is_own_wish(job: Job, workers: int, *, before: int, now: float) -> bool:
    """Whether a change to so many workers is for the job's own good, and not for others'."""
    is_undone = workers < before and workers == cap_of(job, now)
    return is_undone or (workers != before and workers == job.pinned_workers)


def why_size(job: Job, workers: int, *, now: float) -> Reason | None:
    """Why the job is to have so many workers, where that is not the policy's choice."""
    if workers == job.pinned_workers:
        return Pinned(workers)
    if job.cap is not None and workers == cap_of(job, now):
        return DoesNotGrow(workers, job.cap.why)
    return None


def judged(job: Job, now: float) -> Job:
    """The job after an epoch was measured, capped if its size has proved too large."""
    phase = job.phase
    if not isinstance(phase, Running) or phase.joining or cap_of(job, now) is not None:
        return job
    held = phase.allocation
    here = job.speed.measured.get(Size(len(held), n_nodes(held) > 1))
    smaller = _best_smaller(job, len(held))
    if here is None or smaller is None:
        return job
    size, sample = smaller
    gain_s = (job.epochs - job.epochs_done) * (here.mean_s - sample.mean_s)
    if not _is_slower(here, sample) or gain_s <= _way_back_s(job):
        return job
    why = f"on {len(held)} an epoch took {here.mean_s:.3g} s, and {sample.mean_s:.3g} s before"
    return capped(job, size.workers, why=why, now=now)


def _best_smaller(job: Job, workers: int) -> tuple[Size, Sample] | None:
    smaller = (
        (size, sample)
        for size, sample in job.speed.measured.items()
        if job.spec.min_workers <= size.workers < workers
    )
    return min(smaller, key=lambda each: each[1].mean_s, default=None)


def _is_slower(one: Sample, other: Sample) -> bool:
    return one.mean_s * (1 - one.error) > other.mean_s * (1 + other.error)


def _way_back_s(job: Job) -> float:
    if job.spec.mode.resizes_in_place:
        return job.resize_s or 0.0
    return (job.start_s or 0.0) + job.stop_s
