"""Finish-time fairness: how long a job would have taken on an equal share of the cluster.

Themis (Mahajan et al., NSDI 2020, section 3) judges a scheduler by rho = T_shared / T_independent,
where T_independent is a job's completion time on a 1/N share of the cluster with N jobs contending
for it; Gavel (Narayanan et al., OSDI 2020, section 4.2) uses the same measure. N changes all the
time, so here it is the mean number of jobs in the system over the job's own life:

    N      = 1/(finished - submitted) * integral of (jobs in the system at t) dt
    w      = G / (N * gpus_per_worker)                the job's equal share, in workers
    fair_s = 1 / rate(w)

`rate` is the part of the job done in one second. It is 1/run_s at each size that the job can have
and linear in between, starting at (0, 0): a share of 2.5 workers is 2 half of the time and 3 the
other half, and a job that needs 4 GPUs but has a share of 1 runs a quarter of the time. A larger
share is never slower, because a job may leave GPUs unused; above its maximum nothing is gained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Life:
    """When a job came and went, and its run time by number of workers.

    `run_s[i]` is for i + 1 workers, up to the job's maximum; sizes below `min_workers` are not
    looked at. A job that never finished has an infinite `finished_s`.
    """

    submitted_s: float
    finished_s: float
    gpus_per_worker: float
    run_s: tuple[float, ...]
    min_workers: int = 1


def fair_times(lives: Sequence[Life], gpus: int) -> list[float]:
    """Seconds that each job would have taken on its equal share of so many GPUs."""
    if not lives:
        return []
    submitted = np.array([life.submitted_s for life in lives], dtype=np.float64)
    finished = np.array([life.finished_s for life in lives], dtype=np.float64)
    contenders: list[float] = mean_contenders(submitted, finished).tolist()
    return [_fair_s(life, gpus / n) for life, n in zip(lives, contenders, strict=True)]


def mean_contenders(submitted: Floats, finished: Floats) -> Floats:
    """The mean number of jobs in the system over each job's life, the job itself included.

    A job that never finished counts to the last thing that happened.
    """
    origin = submitted.min()
    starts = submitted - origin
    known = np.concatenate((starts, finished[np.isfinite(finished)] - origin))
    ends = np.minimum(finished - origin, known.max())
    span = ends - starts
    is_instant = span <= 0
    # Job-seconds in the system up to each job's end, less those up to its start.
    up_to_end = _elapsed_since(ends, starts) - _elapsed_since(ends, ends)
    up_to_start = _elapsed_since(starts, starts) - _elapsed_since(starts, ends)
    # A job that went as it came meets those who are there at that moment.
    came = _count(starts, until=starts, side="right")
    gone = _count(ends, until=starts, side="left")
    mean = np.where(
        is_instant, came - gone, (up_to_end - up_to_start) / np.where(is_instant, 1.0, span)
    )
    return np.maximum(mean, 1.0)


def _elapsed_since(at: Floats, moments: Floats) -> Floats:
    """The sum of (t - moment) over all moments before t, for each t."""
    ordered = np.sort(moments)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    before = np.searchsorted(ordered, at)
    return before * at - sums[before]


def _count(moments: Floats, *, until: Floats, side: Literal["left", "right"]) -> Floats:
    """How many moments lie before each time, or, to the right of equals, at it as well."""
    return np.searchsorted(np.sort(moments), until, side=side).astype(np.float64)


def _fair_s(life: Life, share_gpus: float) -> float:
    smallest, largest = life.min_workers, len(life.run_s)
    cost = life.gpus_per_worker
    workers = min(share_gpus / cost, largest) if cost > 0 else largest
    sizes = life.run_s[smallest - 1 :]
    if min(sizes) <= 0:
        return 0.0
    rates = [1 / seconds for seconds in sizes]
    best = list(accumulate(rates, max))
    if workers <= smallest:
        rate = best[0] * workers / smallest
    else:
        below = int(workers) - smallest
        gain = best[min(below + 1, len(best) - 1)] - best[below]
        rate = best[below] + (workers - int(workers)) * gain
    return 1 / rate if rate > 0 else float("inf")
