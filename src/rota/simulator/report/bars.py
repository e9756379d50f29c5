"""From tenures to the bars of a Gantt chart: which rows, from when to when, and what is left out.

A row is a GPU, in the order of the cluster's nodes. Neighbouring GPUs of one job on one node make
one bar, and so do tenures of the same GPUs that follow each other without a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rota.core.model import JobId, Node, NodeId, Slot
from rota.simulator.results import Tenure

MOST_BARS = 4_000
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Bar:
    """A job on `height` rows from `row` down; shares of a card make fractions of a row."""

    job_id: JobId
    node: NodeId
    row: float
    height: float
    start_s: float
    end_s: float

    @property
    def gpu_s(self) -> float:
        return self.height * (self.end_s - self.start_s)


@dataclass(frozen=True, slots=True)
class Bars:
    """The bars to draw, and those that are too many, smallest first to go."""

    drawn: tuple[Bar, ...]
    left_out: tuple[Bar, ...]

    @property
    def drawn_share(self) -> float:
        drawn = sum(bar.gpu_s for bar in self.drawn)
        total = drawn + sum(bar.gpu_s for bar in self.left_out)
        return drawn / total if total else 1.0


def first_rows(nodes: Sequence[Node]) -> dict[NodeId, int]:
    """The row of each node's first GPU."""
    rows: dict[NodeId, int] = {}
    row = 0
    for node in nodes:
        rows[node.id] = row
        row += len(node.gpus)
    return rows


def bars(tenures: Sequence[Tenure], nodes: Sequence[Node], *, most: int = MOST_BARS) -> Bars:
    merged = _merged(_all_bars(tenures, nodes))
    if len(merged) <= most:
        return Bars(tuple(merged), ())
    # The sort is stable, so bars of equal size keep their order and the page its bytes.
    by_size = sorted(range(len(merged)), key=lambda index: -merged[index].gpu_s)
    kept = set(by_size[:most])
    return Bars(
        tuple(bar for index, bar in enumerate(merged) if index in kept),
        tuple(bar for index, bar in enumerate(merged) if index not in kept),
    )


def _all_bars(tenures: Sequence[Tenure], nodes: Sequence[Node]) -> Iterator[Bar]:
    rows = first_rows(nodes)
    positions = {
        node.id: {gpu.index: place for place, gpu in enumerate(node.gpus)} for node in nodes
    }
    lanes = _Lanes()
    for tenure in sorted(tenures, key=lambda tenure: (tenure.start_s, tenure.end_s)):
        if tenure.end_s <= tenure.start_s:
            continue
        for node, places in _whole_gpus(tenure.allocation, positions).items():
            for first, height in _stretches(places):
                row = rows[node] + first
                yield Bar(tenure.job_id, node, row, height, tenure.start_s, tenure.end_s)
        for slot in tenure.allocation:
            if slot.fraction < 1 and slot.gpus:
                row = rows[slot.node] + positions[slot.node][slot.gpus[0]]
                bar = Bar(tenure.job_id, slot.node, row, slot.fraction, *_time(tenure))
                yield lanes.placed(bar)


def _time(tenure: Tenure) -> tuple[float, float]:
    return tenure.start_s, tenure.end_s


def _whole_gpus(
    allocation: Sequence[Slot], positions: Mapping[NodeId, Mapping[int, int]]
) -> dict[NodeId, list[int]]:
    places: dict[NodeId, list[int]] = {}
    for slot in allocation:
        if slot.fraction >= 1 and slot.gpus:
            here = positions[slot.node]
            places.setdefault(slot.node, []).extend(here[index] for index in slot.gpus)
    return places


def _stretches(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Runs of neighbours, as (first, how many)."""
    ordered = sorted(places)
    breaks = [at for at, (one, two) in enumerate(pairwise(ordered), 1) if two != one + 1]
    for start, end in pairwise([0, *breaks, len(ordered)]):
        yield ordered[start], end - start


def _merged(parts: Iterator[Bar]) -> list[Bar]:
    merged: list[Bar] = []
    newest: dict[tuple[JobId, float, float], int] = {}
    for bar in parts:
        key = (bar.job_id, bar.row, bar.height)
        before = newest.get(key)
        if before is not None and bar.start_s <= merged[before].end_s + ROUNDING:
            merged[before] = replace(merged[before], end_s=max(bar.end_s, merged[before].end_s))
        else:
            newest[key] = len(merged)
            merged.append(bar)
    return merged


class _Lanes:
    """Finds each share of a card a free stretch of the card's row."""

    def __init__(self) -> None:
        self._present: dict[float, list[Bar]] = {}

    def placed(self, bar: Bar) -> Bar:
        others = [other for other in self._present.get(bar.row, []) if other.end_s > bar.start_s]
        offset = 0.0
        for other in sorted(others, key=lambda other: other.row):
            if bar.row + offset + bar.height <= other.row + ROUNDING:
                break
            offset = other.row + other.height - bar.row
        # Free space in pieces may be too small for the share; it then overlaps its neighbours.
        lane = replace(bar, row=bar.row + min(offset, 1 - bar.height))
        self._present[bar.row] = [*others, lane]
        return lane
