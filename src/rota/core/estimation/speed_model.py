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
from dataclasses import dataclass, field

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
class FitTerms:
    """The terms of the fit `t(n) = work_s/n + exchange_s*(n-1)/n + crossing_s*(crosses nodes)`."""

    work_s: float
    exchange_s: float
    crossing_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """One epoch takes `one_s` seconds on one worker and is `speedup(n)` times faster on n workers.

    The model stores what was measured and assumed, and derives the speed-up of each size on
    request. So a model for 100,000 workers is as small as a model for 4. `error` is the relative
    error of any figure from this model. `assumed` are the speed-ups that a user estimated, empty
    for the prior's. `terms` are known as soon as two sizes are measured.
    """

    one_s: float
    error: float
    measured: Mapping[MeasuredSize, EpochStats] = field(
        default_factory=dict[MeasuredSize, EpochStats]
    )
    assumed: tuple[float, ...] = ()
    terms: FitTerms | None = None
    _curve: _Curve | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        curve = None
        if self.measured:
            curve = _Curve.of(self.measured, self.assumed or PRIOR_SPEEDUPS, terms=self.terms)
        object.__setattr__(self, "_curve", curve)

    def speedup(self, workers: int) -> float:
        """The speed-up on `workers` workers; 0 if nothing is measured and the assumed speed-ups end
        before this size."""
        if self._curve is not None:
            return self.one_s / self._curve.seconds(workers) if workers > 0 else 0.0
        table = self.assumed or PRIOR_SPEEDUPS
        return table[workers] if workers < len(table) else 0.0

    def speedups(self, max_workers: int) -> tuple[float, ...]:
        """The speed-ups on 0, 1, 2, ... workers, as far as they are known and at least up to
        `max_workers`. Models with the same assumed speed-ups share one table."""
        if self._curve is not None:
            return tuple(map(self.speedup, range(max_workers + 1)))
        return self.assumed or PRIOR_SPEEDUPS

    def epoch_s(self, workers: int) -> float:
        speedup = self.speedup(workers)
        return self.one_s / speedup if speedup > 0 else math.inf


@dataclass(frozen=True, slots=True)
class _Curve:
    """The time of one epoch at each size, derived from measurements."""

    means_s: Mapping[int, float]
    """The mean time of each measured size."""
    fewest: int
    crosses_from: float
    """The smallest size of which only times across nodes are known."""
    shape: tuple[float, ...]
    terms: FitTerms | None

    @classmethod
    def of(
        cls,
        measured: Mapping[MeasuredSize, EpochStats],
        shape: tuple[float, ...],
        *,
        terms: FitTerms | None,
    ) -> _Curve:
        means_s = _means_by_workers(measured)
        return cls(means_s, min(means_s), _sizes_that_cross(measured), shape, terms)

    def seconds(self, workers: int) -> float:
        measured_s = self.means_s.get(workers)
        if measured_s is not None:
            return measured_s
        found_s = self._scaled(workers) if self.terms is None else self._fitted(workers, self.terms)
        # A fit with overhead terms only would predict no time for a single worker.
        return max(found_s, self.means_s[self.fewest]) if workers < self.fewest else found_s

    def _scaled(self, workers: int) -> float:
        """The assumed shape, scaled to pass through the only measurement."""
        here = self._assumed(self.fewest) or 1.0
        return self.means_s[self.fewest] * here / (self._assumed(workers) or here)

    def _assumed(self, workers: int) -> float:
        return self.shape[workers] if workers < len(self.shape) else 0.0

    def _fitted(self, workers: int, terms: FitTerms) -> float:
        crossing_s = terms.crossing_s if workers >= self.crosses_from else 0.0
        return terms.work_s / workers + terms.exchange_s * (workers - 1) / workers + crossing_s


def _prior_speedups() -> tuple[float, ...]:
    return tuple(n / (1 + PRIOR_OVERHEAD * (n - 1)) if n else 0.0 for n in range(PRIOR_SIZE))


PRIOR_SPEEDUPS = _prior_speedups()
PRIOR = SpeedModel(one_s=math.inf, error=PRIOR_ERROR)
"""The model of a job about which nothing is known: concave speed-ups, unknown length."""


def estimated(
    epoch_s: float, *, workers: int = 1, speedups: Sequence[float] = PRIOR_SPEEDUPS
) -> SpeedModel:
    """The model from a user's estimate: one epoch takes `epoch_s` on `workers` workers."""
    table = tuple(speedups)
    here = table[workers] if workers < len(table) and table[workers] > 0 else 1.0
    assumed = () if table == PRIOR_SPEEDUPS else table
    return SpeedModel(one_s=epoch_s * here, error=ESTIMATE_ERROR, assumed=assumed)


def learn(model: SpeedModel, size: MeasuredSize, *, epoch_s: float, max_workers: int) -> SpeedModel:
    """The model after one more measured epoch of a job with `max_workers`."""
    if not (epoch_s > 0 and math.isfinite(epoch_s) and size.workers > 0):
        return model
    before = model.measured.get(size)
    sample = before.with_time(epoch_s) if before else stats_of_first_epoch(epoch_s)
    return fitted({**model.measured, size: sample}, model.assumed, max_workers=max_workers)


def fitted(
    measured: Mapping[MeasuredSize, EpochStats], assumed: tuple[float, ...], *, max_workers: int
) -> SpeedModel:
    """The model of these measurements. Assumed times up to `max_workers` take part in the fit."""
    means_s = _means_by_workers(measured)
    shape = assumed or PRIOR_SPEEDUPS
    terms = None
    if len(means_s) > 1:
        n_sizes = max(max_workers, *means_s) + 2
        guesses = _assumed_times(shape, means_s, n_sizes=n_sizes)
        terms = _fit(measured, guesses)
    curve = _Curve.of(measured, shape, terms=terms)
    return SpeedModel(curve.seconds(1), _error(measured), measured, assumed, terms)


def _means_by_workers(measured: Mapping[MeasuredSize, EpochStats]) -> dict[int, float]:
    sums: dict[int, tuple[int, float]] = {}
    for size, sample in measured.items():
        count, total = sums.get(size.workers, (0, 0.0))
        sums[size.workers] = (count + sample.count, total + sample.count * sample.mean_s)
    return {workers: total / count for workers, (count, total) in sorted(sums.items())}


def _fit(measured: Mapping[MeasuredSize, EpochStats], guesses: Mapping[int, float]) -> FitTerms:
    # A start needs no fit, and would spend 0.1 s on NumPy and 0.4 s on this part of SciPy.
    import numpy as np
    from scipy.optimize import nnls

    rows = [_terms(size.workers, crosses=size.crosses) for size in measured]
    rows += [_terms(workers, crosses=False) for workers in guesses]
    weights = np.sqrt(
        [float(sample.count) for sample in measured.values()] + [ASSUMED_WEIGHT] * len(guesses)
    )
    times = np.array([*(sample.mean_s for sample in measured.values()), *guesses.values()])
    (a, b, c), _ = nnls(np.array(rows) * weights[:, None], times * weights)
    return FitTerms(float(a), float(b), float(c))


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
