"""Chart axes: converts seconds to pixels, and selects round numbers for grid lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rota.simulator.metric_table import TIME_UNITS, duration
from rota.svg import Frame, grid_line, label

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0

LINEAR_STEPS = tuple(
    count * unit
    for unit, counts in (
        (1.0, (1, 2, 5, 10, 15, 30)),
        (MINUTE, (1, 2, 5, 10, 15, 30)),
        (HOUR, (1, 2, 3, 6, 12)),
        (DAY, (1, 2, 5, 7, 14, 30, 60, 120, 365)),
    )
    for count in counts
)
COARSE_TICKS = (
    *(0.1, 1.0, 10.0),
    *(count * MINUTE for count in (1, 10)),
    *(count * HOUR for count in (1, 10)),
    *(count * DAY for count in (1, 10, 100, 1_000, 10_000)),
)
FINE_TICKS = (
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0),
    *(count * MINUTE for count in (1, 2, 5, 10, 15, 20, 30, 40)),
    *(count * HOUR for count in (1, 1.5, 2, 3, 5, 10, 15)),
    *(count * DAY for count in (1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000)),
)
FEWEST_TICKS = 5
LOG_MARGIN = 1.15


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """A linear or logarithmic axis from `low_s` to `high_s` across a frame."""

    frame: Frame
    low_s: float
    high_s: float
    is_log: bool = False

    def x(self, time_s: float) -> float:
        if self.is_log:
            low, high = math.log(self.low_s), math.log(self.high_s)
            part = (math.log(max(time_s, self.low_s)) - low) / (high - low)
        else:
            part = (time_s - self.low_s) / (self.high_s - self.low_s)
        return self.frame.left + part * self.frame.width

    def ticks(self, gap_px: float = 90.0) -> list[float]:
        """Return round times on the axis that are at least `gap_px` apart."""
        if not self.is_log:
            return _linear_ticks(self.high_s, max(2, int(self.frame.width / gap_px)))
        coarse = self._spaced(COARSE_TICKS, gap_px)
        return coarse if len(coarse) >= FEWEST_TICKS else self._spaced(FINE_TICKS, gap_px)

    def _spaced(self, ticks: Sequence[float], gap_px: float) -> list[float]:
        kept: list[float] = []
        for tick in ticks:
            is_inside = self.low_s <= tick <= self.high_s
            if is_inside and (not kept or self.x(tick) - self.x(kept[-1]) >= gap_px):
                kept.append(tick)
        return kept


def log_axis(frame: Frame, values: Sequence[float]) -> TimeAxis:
    """Return an axis a little wider than the values, starting at 0.1 s or later."""
    low, high = (min(values), max(values)) if values else (1.0, HOUR)
    start = max(low / LOG_MARGIN, COARSE_TICKS[0])
    return TimeAxis(frame, start, max(high, start) * LOG_MARGIN, is_log=True)


def time_grid(axis: TimeAxis) -> str:
    frame = axis.frame
    ticks = axis.ticks()
    parts: list[str] = []
    for tick in ticks:
        x = axis.x(tick)
        parts.append(grid_line((x, frame.top), (x, frame.bottom)))
        shown = duration(tick) if axis.is_log else in_unit_of(ticks[1], tick)
        parts.append(label((x, frame.bottom + 17), shown, kind="mid"))
    return "".join(parts)


def in_unit_of(step_s: float, time_s: float) -> str:
    """Format a tick in the unit of the step, so that all ticks have one unit: 21 h, 24 h, 27 h."""
    unit, length = next(
        ((unit, length) for unit, length in TIME_UNITS if step_s >= length), ("s", 1.0)
    )
    return f"{time_s / length:g} {unit}" if time_s else "0"


def part_grid(frame: Frame, parts: Sequence[float]) -> str:
    """Draw horizontal lines at fractions of the frame, with labels in per cent."""
    return "".join(
        grid_line((frame.left, frame.y(part)), (frame.right, frame.y(part)))
        + label((frame.left - 8, frame.y(part) + 4), f"{part:.0%}", kind="end")
        for part in parts
    )


def _linear_ticks(high_s: float, most: int) -> list[float]:
    step = next((step for step in LINEAR_STEPS if 1 <= high_s / step <= most), high_s)
    return [step * count for count in range(int(high_s / step) + 1)]
