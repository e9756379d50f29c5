"""The contest for the next worker in AFS-L, and a fast way to hold many contests.

A scan goes through the jobs in order and keeps a champion. Whether a candidate beats the champion
depends on the number of workers that the champion holds, so the relation is not transitive and a
heap cannot replace the scan. But the last champion wins, so the champions of a scan form a chain of
ascending positions. A grant changes only the last champion, and the next scan starts there. The
remaining work is to find the first candidate after a position that beats a given champion: the
nearest candidates are compared one by one, the others in blocks of an array.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NEAREST = 96
"""How many candidates to compare one by one before arrays are faster."""
FIRST_BLOCK = 512
BLOCK_GROWTH = 4


@dataclass(frozen=True, slots=True)
class Entrant:
    """A job in the contest: seconds left on one worker, its speed-ups, and the size of its first
    grant."""

    remaining_s: float
    speedups: Sequence[float]
    first_grant: int


class Contest:
    """The workers that each job holds so far, and the job that should get the next worker.

    `_as_longer` and `_as_shorter` are the two sides of the paper's comparison: the speed that the
    job's next workers add, relative to the speed with them and without them.
    """

    def __init__(self, entrants: Sequence[Entrant]) -> None:
        self.held = [0] * len(entrants)
        self._entrants = entrants
        self._remaining = [each.remaining_s for each in entrants]
        self._is_open = [True] * len(entrants)
        self._as_longer = [0.0] * len(entrants)
        self._as_shorter = [0.0] * len(entrants)
        self._lengths: dict[int, list[float]] = {}
        self._arrays: _Arrays | None = None
        self._chain: list[int] = []
        self._next_place = 0
        for place in range(len(entrants)):
            self._refresh(place)

    def winner(self) -> int | None:
        """The position of the job that wins the scan; None if no job is left."""
        if not self._chain:
            try:
                self._enter(self._is_open.index(True, self._next_place))
            except ValueError:
                return None
        while (better := self._next_better(self._chain[-1], self._next_place)) is not None:
            self._enter(better)
        return self._chain[-1]

    def settle(self, workers: int, *, leaves: bool) -> None:
        """Give the last winner `workers` more workers; with `leaves`, it leaves the contest."""
        winner = self._chain.pop()
        self._next_place = winner
        self.held[winner] += workers
        self._is_open[winner] = not leaves
        self._refresh(winner)

    def _enter(self, place: int) -> None:
        self._chain.append(place)
        self._next_place = place + 1

    def _refresh(self, place: int) -> None:
        entrant, held = self._entrants[place], self.held[place]
        now = _speedup(entrant, held)
        after = _speedup(entrant, held + (1 if held else entrant.first_grant))
        self._as_longer[place] = _divide(after - now, after)
        self._as_shorter[place] = _divide(after - now, now)
        if self._arrays is not None:
            self._arrays.is_open[place] = self._is_open[place]
            self._arrays.is_waiting[place] = held == 0
            self._arrays.as_longer[place] = self._as_longer[place]
            self._arrays.as_shorter[place] = self._as_shorter[place]

    def _next_better(self, champion: int, start: int) -> int | None:
        """The first position from `start` on whose job beats the champion."""
        near_end = min(len(self.held), start + NEAREST)
        if self.held[champion]:
            near = self._near_better_than_running(champion, range(start, near_end))
        else:
            near = self._near_better_than_waiting(champion, range(start, near_end))
        if near is not None or near_end == len(self.held):
            return near
        return self._far_better(champion, near_end)

    def _near_better_than_waiting(self, champion: int, places: range) -> int | None:
        """Of two waiting jobs the shorter one wins, and of equal ones the later one. A running job
        counts as the shorter one, because both lengths are infinite on no workers."""
        remaining_s, as_longer = self._remaining[champion], self._as_longer[champion]
        for at in places:
            if self.held[at] == 0:
                is_better = remaining_s >= self._remaining[at]
            else:
                is_better = not as_longer > self._as_shorter[at]
            if is_better and self._is_open[at]:
                return at
        return None

    def _near_better_than_running(self, champion: int, places: range) -> int | None:
        """Both lengths are taken at the champion's number of workers."""
        lengths = self._lengths_on(self.held[champion])
        length = lengths[champion]
        as_longer, as_shorter = self._as_longer[champion], self._as_shorter[champion]
        for at in places:
            if length >= lengths[at]:
                is_better = not as_longer > self._as_shorter[at]
            else:
                is_better = self._as_longer[at] > as_shorter
            if is_better and self._is_open[at]:
                return at
        return None

    def _far_better(self, champion: int, start: int) -> int | None:
        """The same rules in blocks. The first block is small, because an early hit is likely."""
        if self._arrays is None:
            self._arrays = self._as_arrays()
        held = self.held[champion]
        lengths = self._arrays.lengths(held, self._lengths_on(held)) if held else None
        size = FIRST_BLOCK
        while start < len(self.held):
            is_better = self._arrays.are_better(
                champion, slice(start, start + size), lengths=lengths
            )
            first = int(is_better.argmax())
            if is_better[first]:
                return start + first
            start += size
            size *= BLOCK_GROWTH
        return None

    def _lengths_on(self, workers: int) -> list[float]:
        """How long each job would take on `workers` workers."""
        if workers not in self._lengths:
            self._lengths[workers] = [
                _divide(each.remaining_s, _speedup(each, workers)) for each in self._entrants
            ]
        return self._lengths[workers]

    def _as_arrays(self) -> _Arrays:
        return _Arrays(
            is_open=np.array(self._is_open),
            is_waiting=np.array(self.held) == 0,
            remaining_s=np.array(self._remaining),
            as_longer=np.array(self._as_longer),
            as_shorter=np.array(self._as_shorter),
        )


@dataclass(frozen=True, slots=True)
class _Arrays:
    """The state of the contest as arrays, for whole blocks of jobs."""

    is_open: Flags
    is_waiting: Flags
    remaining_s: Floats
    as_longer: Floats
    as_shorter: Floats
    lengths_by_workers: dict[int, Floats] = field(default_factory=dict[int, Floats])

    def lengths(self, workers: int, lengths: Sequence[float]) -> Floats:
        if workers not in self.lengths_by_workers:
            self.lengths_by_workers[workers] = np.array(lengths)
        return self.lengths_by_workers[workers]

    def are_better(self, champion: int, block: slice, *, lengths: Floats | None) -> Flags:
        """Which jobs of the block beat the champion. Without `lengths`, the champion is waiting."""
        as_shorter = ~(self.as_longer[champion] > self.as_shorter[block])
        if lengths is None:
            is_short = ~self.is_waiting[block]
            otherwise = self.remaining_s[champion] >= self.remaining_s[block]
        else:
            is_short = lengths[champion] >= lengths[block]
            otherwise = self.as_longer[block] > self.as_shorter[champion]
        return self.is_open[block] & ((is_short & as_shorter) | (~is_short & otherwise))


def _speedup(entrant: Entrant, workers: int) -> float:
    table = entrant.speedups
    return table[workers] if workers < len(table) else 0.0


def _divide(dividend: float, divisor: float) -> float:
    """IEEE division: x/0 is infinite, and 0/0 is not a number, which compares with nothing."""
    if divisor:
        return dividend / divisor
    return math.copysign(math.inf, dividend) if dividend else math.nan
