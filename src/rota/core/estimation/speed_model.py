"""How long one epoch takes on n workers: measured, else fitted, else estimated, else a prior.

A model is a value: the time of one epoch on one worker, and a table of speed-ups. The fit is `t(n)
= a/n + b*(n-1)/n + c*(crosses nodes)` with non-negative terms, so that a size that was not measured
never looks better than the measurements allow.

Sizes that were not measured take part in the fit with a small weight, in the shape that was assumed
before the first measurement. Two measured sizes cannot determine three terms, and without the
assumed shape the fit could predict that one worker takes no time at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy

from rota.core.estimation.epoch_samples import EpochStats, stats_of_first_epoch

PRIOR_SIZE = 513
PRIOR_OVERHEAD = 0.05
"""The prior's communication cost: each additional worker adds 5 % of the one-worker time, divided
by n."""
PRIOR_ERROR = 0.5
ESTIMATE_ERROR = 0.3
ASSUMED_WEIGHT = 1e-6
"""The weight of an assumed time in a fit, where one measured epoch weighs 1. It decides only what
the measurements leave open."""


@dataclass(frozen=True, slots=True)
class MeasuredSize:
    """The size of a measurement: the number of workers, on one node or across several."""

    workers: int
    crosses: bool


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """One epoch takes `one_s` seconds on one worker and is `speedups[n]` times faster on n workers.

    `error` is the relative error of any figure from this model. `assumed` are the speed-ups from
    before the first measurement, empty for the prior's: storing them would make each job ten times
    as large.
    """

    one_s: float
    speedups: tuple[float, ...]
    error: float
    measured: Mapping[MeasuredSize, EpochStats] = field(
        default_factory=dict[MeasuredSize, EpochStats]
    )
    assumed: tuple[float, ...] = ()

    def speedup(self, workers: int) -> float:
        """The speed-up on `workers` workers; 0 for a size outside the table."""
        return self.speedups[workers] if workers < len(self.speedups) else 0.0

    def epoch_s(self, workers: int) -> float:
        speedup = self.speedup(workers)
        return self.one_s / speedup if speedup > 0 else math.inf


def _prior_speedups() -> tuple[float, ...]:
    return tuple(n / (1 + PRIOR_OVERHEAD * (n - 1)) if n else 0.0 for n in range(PRIOR_SIZE))


PRIOR = SpeedModel(one_s=math.inf, speedups=_prior_speedups(), error=PRIOR_ERROR)
"""The model of a job about which nothing is known: concave speed-ups, unknown length."""


def estimated(
    epoch_s: float, *, workers: int = 1, speedups: Sequence[float] = PRIOR.speedups
) -> SpeedModel:
    """The model from a user's estimate: one epoch takes `epoch_s` on `workers` workers."""
    table = tuple(speedups)
    here = table[workers] if workers < len(table) and table[workers] > 0 else 1.0
    return SpeedModel(one_s=epoch_s * here, speedups=table, error=ESTIMATE_ERROR)


def learn(model: SpeedModel, size: MeasuredSize, *, epoch_s: float, max_workers: int) -> SpeedModel:
    """The model after one more measured epoch, for sizes up to `max_workers` + 1."""
    if not (epoch_s > 0 and math.isfinite(epoch_s) and size.workers > 0):
        return model
    before = model.measured.get(size)
    sample = before.with_time(epoch_s) if before else stats_of_first_epoch(epoch_s)
    measured = {**model.measured, size: sample}
    assumed = model.assumed if model.measured else _unless_prior(model.speedups)
    return _refit(replace(model, measured=measured, assumed=assumed), max_workers)


def _unless_prior(speedups: tuple[float, ...]) -> tuple[float, ...]:
    return () if speedups == PRIOR.speedups else speedups


def sized_for(model: SpeedModel, max_workers: int) -> SpeedModel:
    """A category's model, extended for a job with a larger maximum size."""
    if not model.measured or len(model.speedups) >= max_workers + 2:
        return model
    return _refit(model, max_workers)


def _refit(model: SpeedModel, max_workers: int) -> SpeedModel:
    means = _means_by_workers(model.measured)
    n_sizes = max(max_workers, *means) + 2
    if len(means) == 1:
        ((workers, mean_s),) = means.items()
        fitted = _scaled(model, n_sizes, workers=workers, mean_s=mean_s)
    else:
        fitted = _fitted(model, n_sizes, means=means)
    fewest = min(means)
    for workers in range(1, fewest):
        # A fit with overhead terms only would predict no time for a single worker.
        fitted[workers] = max(fitted[workers], means[fewest])
    for workers, mean_s in means.items():
        fitted[workers] = mean_s
    one_s = fitted[1]
    return SpeedModel(
        one_s=one_s,
        speedups=(0.0, *(one_s / seconds for seconds in fitted[1:])),
        error=_error(model.measured),
        measured=model.measured,
        assumed=model.assumed,
    )


def _means_by_workers(measured: Mapping[MeasuredSize, EpochStats]) -> dict[int, float]:
    sums: dict[int, tuple[int, float]] = {}
    for size, sample in measured.items():
        count, total = sums.get(size.workers, (0, 0.0))
        sums[size.workers] = (count + sample.count, total + sample.count * sample.mean_s)
    return {workers: total / count for workers, (count, total) in sorted(sums.items())}


def _scaled(model: SpeedModel, n_sizes: int, *, workers: int, mean_s: float) -> list[float]:
    """With one measured size: keep the assumed shape, scaled to pass through the measurement."""
    here = model.speedup(workers) or 1.0
    return [math.inf] + [mean_s * here / (model.speedup(n) or here) for n in range(1, n_sizes)]


def _fitted(model: SpeedModel, n_sizes: int, *, means: Mapping[int, float]) -> list[float]:
    measured = model.measured
    guesses = _assumed_times(model.assumed or PRIOR.speedups, means, n_sizes=n_sizes)
    rows = [_terms(size.workers, crosses=size.crosses) for size in measured]
    rows += [_terms(workers, crosses=False) for workers in guesses]
    weights = np.sqrt(
        [float(sample.count) for sample in measured.values()] + [ASSUMED_WEIGHT] * len(guesses)
    )
    times = np.array([*(sample.mean_s for sample in measured.values()), *guesses.values()])
    # The full name makes SciPy load this module on first use; that saves 0.5 s at every start.
    (a, b, c), _ = scipy.optimize.nnls(np.array(rows) * weights[:, None], times * weights)
    crossing = _sizes_that_cross(measured)
    return [math.inf] + [
        float(a / n + b * (n - 1) / n + (c if n >= crossing else 0.0)) for n in range(1, n_sizes)
    ]


def _terms(workers: int, *, crosses: bool) -> tuple[float, float, float]:
    return 1 / workers, (workers - 1) / workers, float(crosses)


def _assumed_times(
    assumed: Sequence[float], means: Mapping[int, float], *, n_sizes: int
) -> dict[int, float]:
    """Times for sizes that were not measured: the assumed shape, scaled to the measurements."""
    known = [(n, mean) for n, mean in means.items() if n < len(assumed) and assumed[n] > 0]
    if not known:
        return {}
    one_s = sum(mean * assumed[n] for n, mean in known) / len(known)
    return {
        n: one_s / assumed[n]
        for n in range(1, min(n_sizes, len(assumed)))
        if n not in means and assumed[n] > 0
    }


def _sizes_that_cross(measured: Mapping[MeasuredSize, EpochStats]) -> float:
    """The smallest size from which on the job was measured across nodes only."""
    on_one_node = {size.workers for size in measured if not size.crosses}
    across = {size.workers for size in measured if size.crosses} - on_one_node
    return min((n for n in across if n > max(on_one_node, default=0)), default=math.inf)


def _error(measured: Mapping[MeasuredSize, EpochStats]) -> float:
    counts = [sample.count for sample in measured.values()]
    weighted = sum(sample.error * sample.count for sample in measured.values())
    return weighted / sum(counts)
