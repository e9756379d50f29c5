"""Plots of measured dots and a fitted line: their scales and ticks, and drawing them as text.

`profile_svg` draws the same `Plot` values as SVG.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rota.cli.output.table import to_output_charset

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
"""Larger values are not drawn: the sum of two of them could be infinite."""
WIDTH, HEIGHT = 60, 11
MAX_X_TICKS, MAX_Y_TICKS = 7, 6
DOT, HOLLOW, BAR, LINE = "●", "○", "│", "·"


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of a plot. `error` goes to both sides, in the unit of y. A hollow dot was measured
    under other conditions than the line."""

    x: float
    y: float
    error: float = 0.0
    is_hollow: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """The content of a plot.

    Values are never negative, and the y axis starts at 0. `show_x` and `show_y` format the labels
    of ticks. `x_steps` and `y_steps` are the preferred distances between ticks.
    """

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
    """Maps a value to its position on an axis, from 0 to 1."""

    low: float
    high: float

    def part(self, value: float) -> float:
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def ticks(self, most: int, *, steps: tuple[float, ...] = ()) -> list[float]:
        """At most `most` round numbers on the axis."""
        least_step = (self.high - self.low) / max(1, most - 1)
        step = _step(least_step, steps)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, min(last, first + most - 1) + 1)]


def _step(least: float, steps: tuple[float, ...]) -> float:
    """The smallest preferred or round step that is at least `least`."""
    known = next((each for each in steps if each >= least), None)
    if known is not None:
        return known
    power = 10.0 ** math.floor(math.log10(least))
    return next(each * power for each in STEPS if each * power >= least * 0.999)


def plotted(dots: Iterable[Dot]) -> list[Dot]:
    """The dots with finite values, which can be drawn."""
    return [
        replace(dot, error=dot.error if 0 <= dot.error < LARGEST else 0.0)
        for dot in dots
        if 0 <= dot.x < LARGEST and 0 <= dot.y < LARGEST
    ]


def scales(plot: Plot) -> tuple[Scale, Scale] | None:
    """The scales of x and y; None if the plot is empty."""
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
    """The y of the line at an x, interpolated between its dots; None outside the line."""
    for before, after in pairwise(line):
        if before.x <= x <= after.x and after.x > before.x:
            part = (x - before.x) / (after.x - before.x)
            return before.y + part * (after.y - before.y)
    return None


def draw_plot(plot: Plot) -> list[str]:
    """The plot as lines of text; no lines if the plot is empty."""
    axes = scales(plot)
    if axes is None:
        return []
    across, up = axes
    grid = _grid(plot, axes)
    labels = {
        _row(up, tick): plot.show_y(tick) for tick in up.ticks(MAX_Y_TICKS, steps=plot.y_steps)
    }
    margin = max(map(len, labels.values()))
    rows = [
        f"{labels.get(number, ''):>{margin}} {'┤' if number in labels else '│'}{''.join(row)}"
        for number, row in enumerate(grid)
    ]
    x_axis = _x_axis(plot, across, margin=margin)
    return [to_output_charset(line.rstrip()) for line in (plot.title, *rows, *x_axis)]


def _grid(plot: Plot, axes: tuple[Scale, Scale]) -> list[list[str]]:
    across, up = axes
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    line = plotted(plot.line)
    for column in range(WIDTH):
        x = across.low + column / (WIDTH - 1) * (across.high - across.low)
        y = height_at(line, x)
        if y is not None:
            grid[_row(up, y)][column] = LINE
    dots = plotted(plot.dots)
    for dot in dots:
        if dot.error:
            for row in range(_row(up, dot.y + dot.error), _row(up, dot.y - dot.error) + 1):
                grid[row][_column(across, dot.x)] = BAR
    for dot in dots:
        grid[_row(up, dot.y)][_column(across, dot.x)] = HOLLOW if dot.is_hollow else DOT
    return grid


def _x_axis(plot: Plot, across: Scale, *, margin: int) -> Sequence[str]:
    """The x axis and its labels. A label that would touch the previous one is left out."""
    rule, figures = ["─"] * WIDTH, ""
    for tick in across.ticks(MAX_X_TICKS, steps=plot.x_steps):
        column, text = _column(across, tick), plot.show_x(tick)
        start = max(0, column - len(text) // 2)
        if figures and start <= len(figures):
            continue
        figures = figures.ljust(start) + text
        rule[column] = "┬"
    indent = " " * margin
    return f"{indent} └{''.join(rule)}", f"{indent}  {figures}   {plot.x_title}"


def _row(up: Scale, value: float) -> int:
    return HEIGHT - 1 - round(up.part(value) * (HEIGHT - 1))


def _column(across: Scale, value: float) -> int:
    return round(across.part(value) * (WIDTH - 1))
