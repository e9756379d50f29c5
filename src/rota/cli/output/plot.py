"""A plot as values: dots that were measured, a line that was fitted, and round numbers to read
them by. The terminal and the SVG draw the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

STEPS = (1.0, 2.0, 5.0, 10.0)
TIME_STEPS = tuple(
    count * unit
    for unit, counts in (
        *((10.0**-power, (1, 2, 5)) for power in range(9, 0, -1)),
        (1.0, (1, 2, 5, 10, 20, 30)),
        (60.0, (1, 2, 5, 10, 20, 30)),
        (3600.0, (1, 2, 4, 6, 12)),
        (86400.0, (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
    )
    for count in counts
)
WHOLE_STEPS = tuple(count * 10.0**power for power in range(7) for count in (1, 2, 5))
BYTE_STEPS = tuple(
    count * 1024.0**power for power in range(5) for count in (1, 2, 5, 10, 20, 50, 100, 200, 500)
)
HEADROOM = 1.05
LARGEST = 1e300
"""Beyond it, sums of two figures are no longer figures."""


@dataclass(frozen=True, slots=True)
class Dot:
    """`error` is to both sides, in the unit of y. A hollow one was measured under other
    circumstances."""

    x: float
    y: float
    error: float = 0.0
    is_hollow: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """`show_x` and `show_y` make words of numbers. Both axes hold figures that are never negative,
    and y begins at 0. Ticks are apart by one of `x_steps` and `y_steps`, where one of them does."""

    title: str
    x_title: str
    dots: tuple[Dot, ...]
    show_x: Callable[[float], str]
    show_y: Callable[[float], str]
    line: tuple[Dot, ...] = ()
    x_steps: tuple[float, ...] = ()
    y_steps: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Scale:
    """From a figure to its part, 0 to 1, of an axis."""

    low: float
    high: float

    def part(self, value: float) -> float:
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def ticks(self, most: int, *, steps: tuple[float, ...] = ()) -> list[float]:
        """At most so many round numbers on the axis."""
        least_step = (self.high - self.low) / max(1, most - 1)
        step = _step(least_step, steps)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, min(last, first + most - 1) + 1)]


def _step(least: float, steps: tuple[float, ...]) -> float:
    """The smallest round number that is not below the least."""
    known = next((each for each in steps if each >= least), None)
    if known is not None:
        return known
    power = 10.0 ** math.floor(math.log10(least))
    return next(each * power for each in STEPS if each * power >= least * 0.999)


def plotted(dots: Iterable[Dot]) -> list[Dot]:
    """Those that can be drawn."""
    return [
        replace(dot, error=dot.error if 0 <= dot.error < LARGEST else 0.0)
        for dot in dots
        if 0 <= dot.x < LARGEST and 0 <= dot.y < LARGEST
    ]


def scales(plot: Plot) -> tuple[Scale, Scale] | None:
    """Of x and y; None where there is nothing to draw."""
    dots, line = plotted(plot.dots), plotted(plot.line)
    if not dots and not line:
        return None
    xs = [dot.x for dot in (*dots, *line)]
    low, high = min(xs), max(xs)
    if high <= low:
        room = max(1.0, low * 0.5)
        low, high = max(0.0, low - room), low + room
    top = max(dot.y + dot.error for dot in (*dots, *line)) * HEADROOM
    return Scale(low, high), Scale(0.0, top if top > 0 else 1.0)


def height_at(line: list[Dot], x: float) -> float | None:
    """The line's y at an x, straight between its dots; None outside."""
    for before, after in pairwise(line):
        if before.x <= x <= after.x and after.x > before.x:
            part = (x - before.x) / (after.x - before.x)
            return before.y + part * (after.y - before.y)
    return None
