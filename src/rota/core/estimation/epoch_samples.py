"""Epoch times measured at one size: their mean, how far to trust it, and when to begin anew.

While the times agree, all of them count. When the newest ones stand apart from those before, the
job has changed its pace (a warm-up ended, a neighbour came, a link slowed down), and only the
newest ones say how it goes on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

ERROR_OF_ONE = 0.1
FEWEST_RECENT = 2
"""One odd epoch is an odd epoch; two in a row are a change."""
MOST_RECENT = 5
LEAST_CHANGE = 0.05
SURE = 4.0
"""By how many standard errors the newest times must stand apart."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Mean and spread of measured times (Welford's sums), and the newest of them."""

    count: int
    mean_s: float
    squares: float
    recent: tuple[float, ...] = ()

    def with_time(self, seconds: float) -> Sample:
        recent = (*self.recent, seconds)[-MOST_RECENT:]
        whole = self._added(seconds, recent)
        for size in range(FEWEST_RECENT, min(len(recent), whole.count - 1) + 1):
            if _stands_apart(whole, recent[-size:]):
                return _of(recent[-size:])
        return whole

    def _added(self, seconds: float, recent: tuple[float, ...]) -> Sample:
        count = self.count + 1
        delta = seconds - self.mean_s
        mean = self.mean_s + delta / count
        return Sample(count, mean, self.squares + delta * (seconds - mean), recent)

    @property
    def error(self) -> float:
        """Relative standard error of the mean. One measurement alone is worth 10 %, and two that
        happen to agree are not worth much more."""
        squares = self.squares + (ERROR_OF_ONE * self.mean_s) ** 2
        return math.sqrt(squares) / self.count / self.mean_s

    @property
    def spread(self) -> float:
        """How far one more time may lie from the mean, as a part of it."""
        return self.error * math.sqrt(self.count)


def first(seconds: float) -> Sample:
    return Sample(1, seconds, 0.0, (seconds,))


def _of(times: Sequence[float]) -> Sample:
    mean = sum(times) / len(times)
    return Sample(len(times), mean, sum((each - mean) ** 2 for each in times), tuple(times))


def _stands_apart(whole: Sample, newest: Sequence[float]) -> bool:
    """Whether each of the newest times lies on the same side of those before, and their means
    differ by Student's test, with one more measurement of the usual error thrown in, so that a
    few times that happen to agree do not make it too sure."""
    n_newest, n_older = len(newest), whole.count - len(newest)
    newest_s = sum(newest) / n_newest
    older_s = (whole.count * whole.mean_s - sum(newest)) / n_older
    least_s = LEAST_CHANGE * older_s
    if min(newest) <= older_s + least_s and max(newest) >= older_s - least_s:
        return False
    change = abs(newest_s - older_s)
    between = n_newest * n_older / whole.count * change**2
    within = max(0.0, whole.squares - between) + (ERROR_OF_ONE * older_s) ** 2
    variance = within / (whole.count - 1)
    return change**2 > SURE**2 * variance * (1 / n_newest + 1 / n_older)
