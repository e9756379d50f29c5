"""A plot in characters, for terminals and pipes."""

from __future__ import annotations

from collections.abc import Sequence

from rota.cli.output.marks import told
from rota.cli.output.plot import Plot, Scale, height_at, plotted, scales

WIDTH, HEIGHT = 60, 11
MOST_X_TICKS, MOST_Y_TICKS = 7, 6
DOT, HOLLOW, BAR, LINE = "●", "○", "│", "·"


def draw(plot: Plot) -> list[str]:
    """Lines of text; none where there is nothing to draw."""
    axes = scales(plot)
    if axes is None:
        return []
    across, up = axes
    grid = _grid(plot, axes)
    labels = {
        _row(up, tick): plot.show_y(tick) for tick in up.ticks(MOST_Y_TICKS, steps=plot.y_steps)
    }
    margin = max(map(len, labels.values()))
    rows = [
        f"{labels.get(number, ''):>{margin}} {'┤' if number in labels else '│'}{''.join(row)}"
        for number, row in enumerate(grid)
    ]
    feet = _feet(plot, across, margin=margin)
    return [told(line.rstrip()) for line in (plot.title, *rows, *feet)]


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


def _feet(plot: Plot, across: Scale, *, margin: int) -> Sequence[str]:
    """The axis below, and its figures as far as they do not touch."""
    rule, figures = ["─"] * WIDTH, ""
    for tick in across.ticks(MOST_X_TICKS, steps=plot.x_steps):
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
