"""How long one epoch takes on n workers: measured, else fitted, else estimated, else a prior.

A model is a value: the time of one epoch on one worker, and a table of speed-ups. The fit is
`t(n) = a/n + b*(n-1)/n + c*(crosses nodes)` with terms that are never negative, so that a size
nobody measured never looks better than the measured ones allow. Sizes that were not measured
take part with a small weight, in the shape that was assumed before anything was: two measured
sizes cannot tell the three terms apart, and the fit may not explain them by a job that takes no
time at all on one worker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy

from rota.core.samples import Sample, first

PRIOR_SIZE = 513
PRIOR_OVERHEAD = 0.05
"""The prior's communication cost: each worker more adds 5 % of the one-worker time over n."""
PRIOR_ERROR = 0.5
ESTIMATE_ERROR = 0.3
ASSUMED_WEIGHT = 1e-6
"""What an assumed time counts in a fit, where one measured epoch counts 1: just enough to settle
what the measured ones leave open."""


@dataclass(frozen=True, slots=True)
class Size:
    """Where a time was measured: with so many workers, on one node or across several."""

    workers: int
    crosses: bool


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """`one_s` seconds an epoch on one worker; `speedups[n]` times faster on n.

    `error` is the relative error to show with any figure made from this model; `assumed` are
    the speed-ups from before the first measurement, and empty where those are the prior's: written
    out they would make each job ten times as long.
    """

    one_s: float
    speedups: tuple[float, ...]
    error: float
    measured: Mapping[Size, Sample] = field(default_factory=dict[Size, Sample])
    assumed: tuple[float, ...] = ()

    def speedup(self, workers: int) -> float:
        """A size outside the table speeds nothing up."""
        return self.speedups[workers] if workers < len(self.speedups) else 0.0

    def epoch_s(self, workers: int) -> float:
        speedup = self.speedup(workers)
        return self.one_s / speedup if speedup > 0 else math.inf


def _prior_speedups() -> tuple[float, ...]:
    return tuple(n / (1 + PRIOR_OVERHEAD * (n - 1)) if n else 0.0 for n in range(PRIOR_SIZE))


PRIOR = SpeedModel(one_s=math.inf, speedups=_prior_speedups(), error=PRIOR_ERROR)
"""What is assumed of a job about which nothing is known: concave, and of unknown length."""


def estimated(
    epoch_s: float, *, workers: int = 1, speedups: Sequence[float] = PRIOR.speedups
) -> SpeedModel:
    """The model of a user's word: one epoch takes `epoch_s` on so many workers."""
    table = tuple(speedups)
    here = table[workers] if workers < len(table) and table[workers] > 0 else 1.0
    return SpeedModel(one_s=epoch_s * here, speedups=table, error=ESTIMATE_ERROR)


def learn(model: SpeedModel, size: Size, *, epoch_s: float, max_workers: int) -> SpeedModel:
    """The model after one more measured epoch, for sizes up to one above `max_workers`."""
    if not (epoch_s > 0 and math.isfinite(epoch_s) and size.workers > 0):
        return model
    before = model.measured.get(size)
    sample = before.with_time(epoch_s) if before else first(epoch_s)
    measured = {**model.measured, size: sample}
    assumed = model.assumed if model.measured else _told(model.speedups)
    return _refit(replace(model, measured=measured, assumed=assumed), max_workers)


def _told(speedups: tuple[float, ...]) -> tuple[float, ...]:
    return () if speedups == PRIOR.speedups else speedups


def sized_for(model: SpeedModel, max_workers: int) -> SpeedModel:
    """What jobs of a category measured, for one of them that may grow larger."""
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
        # A fit that finds nothing but overhead would have a lone worker done at once.
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


def _means_by_workers(measured: Mapping[Size, Sample]) -> dict[int, float]:
    sums: dict[int, tuple[int, float]] = {}
    for size, sample in measured.items():
        count, total = sums.get(size.workers, (0, 0.0))
        sums[size.workers] = (count + sample.count, total + sample.count * sample.mean_s)
    return {workers: total / count for workers, (count, total) in sorted(sums.items())}


def _scaled(model: SpeedModel, n_sizes: int, *, workers: int, mean_s: float) -> list[float]:
    """With one size measured, the estimate's shape is kept and moved through that point."""
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
    # By its long name, SciPy loads this part when it is first used: half a second of every start.
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
    """Times of sizes that nobody measured: the assumed shape, moved through those measured."""
    known = [(n, mean) for n, mean in means.items() if n < len(assumed) and assumed[n] > 0]
    if not known:
        return {}
    one_s = sum(mean * assumed[n] for n, mean in known) / len(known)
    return {
        n: one_s / assumed[n]
        for n in range(1, min(n_sizes, len(assumed)))
        if n not in means and assumed[n] > 0
    }


def _sizes_that_cross(measured: Mapping[Size, Sample]) -> float:
    """From this size on the job was only ever seen across nodes."""
    on_one_node = {size.workers for size in measured if not size.crosses}
    across = {size.workers for size in measured if size.crosses} - on_one_node
    return min((n for n in across if n > max(on_one_node, default=0)), default=math.inf)


def _error(measured: Mapping[Size, Sample]) -> float:
    counts = [sample.count for sample in measured.values()]
    weighted = sum(sample.error * sample.count for sample in measured.values())
    return weighted / sum(counts)
