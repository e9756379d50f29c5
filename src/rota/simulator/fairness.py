"""Finish-time fairness: the completion time of a job on an equal share of the cluster.

Themis (Mahajan et al., NSDI 2020, section 3) rates a scheduler by rho = T_shared / T_independent,
where T_independent is the completion time of a job on a 1/N share of the cluster, with N competing
jobs; Gavel (Narayanan et al., OSDI 2020, section 4.2) uses the same measure. N changes over time,
so this module takes the mean number of jobs in the system between submission and end of the job:

    N      = 1/(finished - submitted) * integral of (jobs in the system at t) dt
    w      = G / (N * gpus_per_worker)                the job's equal share, in workers
    fair_s = 1 / rate(w)

`rate` is the fraction of the job done per second. It is 1/run_s at each size that the job can have
and linear in between, starting at (0, 0): a share of 2.5 workers means 2 workers for half of the
time and 3 for the other half, and a job that needs 4 GPUs with a share of 1 runs a quarter of the
time. A larger share is never slower, because a job may leave GPUs unused. A share above the maximum
of the job brings no gain.
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
class JobLifetime:
    """The submission and end of a job, and its run time by number of workers.

    `run_s[i]` is for i + 1 workers, up to the maximum of the job; sizes below `min_workers` are
    ignored. A job that never finished has an infinite `finished_s`.
    """

    submitted_s: float
    finished_s: float
    gpus_per_worker: float
    run_s: tuple[float, ...]
    min_workers: int = 1


def fair_times(lifetimes: Sequence[JobLifetime], gpus: int) -> list[float]:
    """Return the seconds that each job takes on its equal share of a cluster with `gpus` GPUs."""
    if not lifetimes:
        return []
    submitted = np.array([lifetime.submitted_s for lifetime in lifetimes], dtype=np.float64)
    finished = np.array([lifetime.finished_s for lifetime in lifetimes], dtype=np.float64)
    contenders: list[float] = mean_contenders(submitted, finished).tolist()
    return [_fair_s(lifetime, gpus / n) for lifetime, n in zip(lifetimes, contenders, strict=True)]


def mean_contenders(submitted: Floats, finished: Floats) -> Floats:
    """Return the mean number of jobs in the system during each job, the job itself included.

    A job that never finished counts until the last submission or end of any job.
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
    # A job that ends at its submission competes with the jobs in the system at that time.
    n_submitted = _count(starts, until=starts, side="right")
    n_ended = _count(ends, until=starts, side="left")
    mean = np.where(
        is_instant,
        n_submitted - n_ended,
        (up_to_end - up_to_start) / np.where(is_instant, 1.0, span),
    )
    return np.maximum(mean, 1.0)


def _elapsed_since(at: Floats, times: Floats) -> Floats:
    """Return, for each t in `at`, the sum of (t - time) over all times before t."""
    ordered = np.sort(times)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    before = np.searchsorted(ordered, at)
    return before * at - sums[before]


def _count(times: Floats, *, until: Floats, side: Literal["left", "right"]) -> Floats:
    """Return how many times are before each `until`; with `side="right"`, before or equal."""
    return np.searchsorted(np.sort(times), until, side=side).astype(np.float64)


def _fair_s(lifetime: JobLifetime, share_gpus: float) -> float:
    smallest, largest = lifetime.min_workers, len(lifetime.run_s)
    cost = lifetime.gpus_per_worker
    workers = min(share_gpus / cost, largest) if cost > 0 else largest
    sizes = lifetime.run_s[smallest - 1 :]
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
