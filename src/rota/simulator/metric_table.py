"""Formats metrics as table columns: titles, units, decimals, and the best value.

The tables on the terminal and in the HTML report use the same columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum

from rota.simulator.metrics import RunMetrics

NO_VALUE = "\N{EN DASH}"
TIME_UNITS = (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0))


class MetricKind(StrEnum):
    COUNT = ""
    TIME = "s"
    MILLISECONDS = "ms"
    GPU_HOURS = "GPU h"
    PERCENT = "%"
    RATIO = "x"


FIXED_DECIMALS = {MetricKind.COUNT: 0, MetricKind.PERCENT: 1}


class Better(Enum):
    LOW = "low"
    HIGH = "high"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric: its field in `RunMetrics`, and how to show it."""

    name: str
    title: str
    kind: MetricKind
    better: Better = Better.LOW


@dataclass(frozen=True, slots=True)
class MetricColumn:
    """One metric of all runs, with the same unit and decimals in every cell."""

    title: str
    unit: str
    cells: tuple[str, ...]
    best: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class MetricGroup:
    title: str
    metrics: tuple[MetricSpec, ...]


COMPLETION = MetricGroup(
    "Completion time",
    (
        MetricSpec("jobs", "jobs", MetricKind.COUNT, Better.NEITHER),
        MetricSpec("finished", "finished", MetricKind.COUNT, Better.HIGH),
        MetricSpec("mean_jct_s", "mean", MetricKind.TIME),
        MetricSpec("p50_jct_s", "p50", MetricKind.TIME),
        MetricSpec("p95_jct_s", "p95", MetricKind.TIME),
        MetricSpec("p99_jct_s", "p99", MetricKind.TIME),
        MetricSpec("makespan_s", "makespan", MetricKind.TIME),
        MetricSpec("mean_wait_s", "mean wait", MetricKind.TIME),
    ),
)
CLUSTER = MetricGroup(
    "Cluster and fairness",
    (
        MetricSpec("utilisation", "utilised", MetricKind.PERCENT, Better.HIGH),
        MetricSpec("gpu_hours", "held", MetricKind.GPU_HOURS),
        MetricSpec("worst_unfairness", "worst unfairness", MetricKind.RATIO),
        MetricSpec("unfair_share", "unfair jobs", MetricKind.PERCENT),
    ),
)
CHANGES = MetricGroup(
    "Changes",
    (
        MetricSpec("preemptions", "preemptions", MetricKind.COUNT),
        MetricSpec("resizes", "resizes", MetricKind.COUNT),
        MetricSpec("moves", "moves", MetricKind.COUNT),
        MetricSpec("rounds", "rounds", MetricKind.COUNT, Better.NEITHER),
    ),
)
DECISIONS = MetricGroup(
    "Decision time",
    (
        MetricSpec("decision_ms_p50", "p50", MetricKind.MILLISECONDS),
        MetricSpec("decision_ms_p99", "p99", MetricKind.MILLISECONDS),
        MetricSpec("decision_ms_max", "max", MetricKind.MILLISECONDS),
    ),
)

GROUPS = (COMPLETION, CLUSTER, CHANGES, DECISIONS)


def columns(group: MetricGroup, rows: Sequence[RunMetrics]) -> tuple[MetricColumn, ...]:
    time_unit = _time_unit(group, rows)
    return tuple(_column(metric, rows, time_unit=time_unit) for metric in group.metrics)


def duration(seconds: float) -> str:
    """Format a duration in the largest unit that fits: `45 s`, `2.5 h`."""
    for unit, length in TIME_UNITS:
        if seconds >= length or unit == "s":
            return f"{_trimmed(seconds / length)} {unit}"
    raise AssertionError("the loop returns at the unit of seconds")


def _trimmed(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _values(metric: MetricSpec, rows: Sequence[RunMetrics]) -> list[float | None]:
    return [getattr(row, metric.name) for row in rows]


def _column(
    metric: MetricSpec, rows: Sequence[RunMetrics], *, time_unit: tuple[str, float]
) -> MetricColumn:
    values = _values(metric, rows)
    unit, length = _unit(metric.kind, time_unit)
    scaled = [None if value is None else value / length for value in values]
    decimals = FIXED_DECIMALS.get(metric.kind, _decimals(scaled))
    cells = tuple(NO_VALUE if value is None else f"{value:,.{decimals}f}" for value in scaled)
    return MetricColumn(metric.title, unit, cells, _best(metric.better, values=values, cells=cells))


def _unit(kind: MetricKind, time_unit: tuple[str, float]) -> tuple[str, float]:
    if kind is MetricKind.TIME:
        return time_unit
    return kind.value, 0.01 if kind is MetricKind.PERCENT else 1.0


def _time_unit(group: MetricGroup, rows: Sequence[RunMetrics]) -> tuple[str, float]:
    """Choose one unit for all times of a group: the largest that three quarters of them reach.

    Hours are the largest unit, because times in days are harder to compare.
    """
    metrics = [metric for metric in group.metrics if metric.kind is MetricKind.TIME]
    times = [value for metric in metrics for value in _values(metric, rows) if value]
    for unit, length in TIME_UNITS[1:-1]:
        if times and sum(time >= length for time in times) >= 0.75 * len(times):
            return unit, length
    return "s", 1.0


def _decimals(values: Sequence[float | None]) -> int:
    """Show at least three digits of the largest value, with at most two decimals."""
    largest = max((value for value in values if value is not None), default=0.0)
    return 0 if largest >= 1000 else 1 if largest >= 100 else 2


def _best(
    better: Better, *, values: Sequence[float | None], cells: Sequence[str]
) -> frozenset[int]:
    """Return the rows that show the best value, or none if all rows show the same."""
    known = [(value, cell) for value, cell in zip(values, cells, strict=True) if value is not None]
    if better is Better.NEITHER or len({cell for _, cell in known}) < 2:
        return frozenset()
    _, best = min(known) if better is Better.LOW else max(known)
    return frozenset(row for row, cell in enumerate(cells) if cell == best)
