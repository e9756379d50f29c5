"""Statistics of the epoch times measured at one size: the mean, its error, and when to start over.

While the times agree, all of them count. When the newest times clearly differ from the earlier
ones, the job has changed its speed (a warm-up ended, a neighbour started, a link slowed down), and
only the newest times count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

ERROR_OF_ONE = 0.1
MIN_RECENT = 2
"""One unusual epoch is an outlier; two in a row are a change."""
MAX_RECENT = 5
MIN_CHANGE = 0.05
MIN_STANDARD_ERRORS = 4.0
"""By how many standard errors the newest times must differ."""


@dataclass(frozen=True, slots=True)
class EpochStats:
    """Mean and squared deviations of measured times (Welford's method), and the newest times."""

    count: int
    mean_s: float
    squares: float
    recent: tuple[float, ...] = ()

    def with_time(self, seconds: float) -> EpochStats:
        """The statistics with one more time; only of the newest times if they show a change."""
        recent = (*self.recent, seconds)[-MAX_RECENT:]
        whole = self._added(seconds, recent)
        for size in range(MIN_RECENT, min(len(recent), whole.count - 1) + 1):
            if _stands_apart(whole, recent[-size:]):
                return _stats_of(recent[-size:])
        return whole

    def _added(self, seconds: float, recent: tuple[float, ...]) -> EpochStats:
        count = self.count + 1
        delta = seconds - self.mean_s
        mean = self.mean_s + delta / count
        return EpochStats(count, mean, self.squares + delta * (seconds - mean), recent)

    @property
    def error(self) -> float:
        """Relative standard error of the mean. It includes the assumed error of a single
        measurement (10 %), so that a few times that agree by chance do not look exact."""
        squares = self.squares + (ERROR_OF_ONE * self.mean_s) ** 2
        return math.sqrt(squares) / self.count / self.mean_s

    @property
    def spread(self) -> float:
        """How far one more time may be from the mean, relative to the mean."""
        return self.error * math.sqrt(self.count)


def stats_of_first_epoch(seconds: float) -> EpochStats:
    return EpochStats(1, seconds, 0.0, (seconds,))


def _stats_of(times: Sequence[float]) -> EpochStats:
    mean = sum(times) / len(times)
    return EpochStats(len(times), mean, sum((each - mean) ** 2 for each in times), tuple(times))


def _stands_apart(whole: EpochStats, newest: Sequence[float]) -> bool:
    """Whether the newest times differ from the earlier ones: all on the same side, and with a
    different mean by Student's test. The variance includes the error of one usual measurement, so
    that a few times that agree by chance do not make the test too sure."""
    n_newest, n_older = len(newest), whole.count - len(newest)
    newest_s = sum(newest) / n_newest
    older_s = (whole.count * whole.mean_s - sum(newest)) / n_older
    least_s = MIN_CHANGE * older_s
    if min(newest) <= older_s + least_s and max(newest) >= older_s - least_s:
        return False
    change = abs(newest_s - older_s)
    between = n_newest * n_older / whole.count * change**2
    within = max(0.0, whole.squares - between) + (ERROR_OF_ONE * older_s) ** 2
    variance = within / (whole.count - 1)
    return change**2 > MIN_STANDARD_ERRORS**2 * variance * (1 / n_newest + 1 / n_older)
