"""The measures as columns for people: titles, units, and which value is the best.

The table on the terminal and the one in the report are made from the same columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum

from rota.simulator.results import Measures

NO_VALUE = "\N{EN DASH}"
TIME_UNITS = (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0))


class Kind(StrEnum):
    COUNT = ""
    TIME = "s"
    MILLISECONDS = "ms"
    GPU_HOURS = "GPU h"
    PERCENT = "%"
    RATIO = "x"


FIXED_DECIMALS = {Kind.COUNT: 0, Kind.PERCENT: 1}


class Better(Enum):
    LOW = "low"
    HIGH = "high"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measure: the field of `Measures`, and how to show it."""

    name: str
    title: str
    kind: Kind
    better: Better = Better.LOW


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of all runs, in one unit and with equal decimals, so that values compare."""

    title: str
    unit: str
    cells: tuple[str, ...]
    best: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Group:
    title: str
    figures: tuple[Figure, ...]


COMPLETION = Group(
    "Completion time",
    (
        Figure("jobs", "jobs", Kind.COUNT, Better.NEITHER),
        Figure("finished", "finished", Kind.COUNT, Better.HIGH),
        Figure("mean_jct_s", "mean", Kind.TIME),
        Figure("p50_jct_s", "p50", Kind.TIME),
        Figure("p95_jct_s", "p95", Kind.TIME),
        Figure("p99_jct_s", "p99", Kind.TIME),
        Figure("makespan_s", "makespan", Kind.TIME),
        Figure("mean_wait_s", "mean wait", Kind.TIME),
    ),
)
CLUSTER = Group(
    "Cluster and fairness",
    (
        Figure("utilisation", "utilised", Kind.PERCENT, Better.HIGH),
        Figure("gpu_hours", "held", Kind.GPU_HOURS),
        Figure("worst_unfairness", "worst unfairness", Kind.RATIO),
        Figure("unfair_share", "unfair jobs", Kind.PERCENT),
    ),
)
CHANGES = Group(
    "Changes",
    (
        Figure("preemptions", "preemptions", Kind.COUNT),
        Figure("resizes", "resizes", Kind.COUNT),
        Figure("moves", "moves", Kind.COUNT),
        Figure("rounds", "rounds", Kind.COUNT, Better.NEITHER),
    ),
)
DECISIONS = Group(
    "Decision time",
    (
        Figure("decision_ms_p50", "p50", Kind.MILLISECONDS),
        Figure("decision_ms_p99", "p99", Kind.MILLISECONDS),
        Figure("decision_ms_max", "max", Kind.MILLISECONDS),
    ),
)

GROUPS = (COMPLETION, CLUSTER, CHANGES, DECISIONS)


def columns(group: Group, rows: Sequence[Measures]) -> tuple[Column, ...]:
    time_unit = _time_unit(group, rows)
    return tuple(_column(figure, rows, time_unit=time_unit) for figure in group.figures)


def duration(seconds: float) -> str:
    """A length of time in the unit that suits it: `45 s`, `2.5 h`."""
    for unit, length in TIME_UNITS:
        if seconds >= length or unit == "s":
            return f"{_trimmed(seconds / length)} {unit}"
    raise AssertionError("the last unit takes everything")


def _trimmed(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _values(figure: Figure, rows: Sequence[Measures]) -> list[float | None]:
    return [getattr(row, figure.name) for row in rows]


def _column(figure: Figure, rows: Sequence[Measures], *, time_unit: tuple[str, float]) -> Column:
    values = _values(figure, rows)
    unit, length = _unit(figure.kind, time_unit)
    scaled = [None if value is None else value / length for value in values]
    decimals = FIXED_DECIMALS.get(figure.kind, _decimals(scaled))
    cells = tuple(NO_VALUE if value is None else f"{value:,.{decimals}f}" for value in scaled)
    return Column(figure.title, unit, cells, _best(figure.better, values=values, cells=cells))


def _unit(kind: Kind, time_unit: tuple[str, float]) -> tuple[str, float]:
    if kind is Kind.TIME:
        return time_unit
    return kind.value, 0.01 if kind is Kind.PERCENT else 1.0


def _time_unit(group: Group, rows: Sequence[Measures]) -> tuple[str, float]:
    """One unit for all times of a group: the largest that three quarters of them reach. Never
    days, which nobody multiplies by 24 at a glance."""
    figures = [figure for figure in group.figures if figure.kind is Kind.TIME]
    times = [value for figure in figures for value in _values(figure, rows) if value]
    for unit, length in TIME_UNITS[1:-1]:
        if times and sum(time >= length for time in times) >= 0.75 * len(times):
            return unit, length
    return "s", 1.0


def _decimals(values: Sequence[float | None]) -> int:
    """Enough for three digits of the largest value, two decimals at most."""
    largest = max((value for value in values if value is not None), default=0.0)
    return 0 if largest >= 1000 else 1 if largest >= 100 else 2


def _best(
    better: Better, *, values: Sequence[float | None], cells: Sequence[str]
) -> frozenset[int]:
    """The rows that show the best value; none where all show the same."""
    known = [(value, cell) for value, cell in zip(values, cells, strict=True) if value is not None]
    if better is Better.NEITHER or len({cell for _, cell in known}) < 2:
        return frozenset()
    _, best = min(known) if better is Better.LOW else max(known)
    return frozenset(row for row, cell in enumerate(cells) if cell == best)
