"""Computes the bars of a Gantt chart from allocation spans, and drops the smallest if too many.

A row is a GPU, in the order of the nodes. Neighbouring GPUs of one job on one node make one bar,
and so do consecutive spans of the same GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rota.core.model.allocation import Slot
from rota.core.model.job import JobId
from rota.core.model.node import Node, NodeId
from rota.simulator.metrics import AllocationSpan

MAX_BARS = 4_000
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Bar:
    """A job on `height` rows from `row` down. A share of a GPU is a fraction of a row."""

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
    """The bars to draw, and the smallest bars, which are left out above the limit."""

    drawn: tuple[Bar, ...]
    left_out: tuple[Bar, ...]

    @property
    def drawn_share(self) -> float:
        drawn = sum(bar.gpu_s for bar in self.drawn)
        total = drawn + sum(bar.gpu_s for bar in self.left_out)
        return drawn / total if total else 1.0


def first_rows(nodes: Sequence[Node]) -> dict[NodeId, int]:
    """Return the row of the first GPU of each node."""
    rows: dict[NodeId, int] = {}
    row = 0
    for node in nodes:
        rows[node.id] = row
        row += len(node.gpus)
    return rows


def bars(
    allocation_spans: Sequence[AllocationSpan], nodes: Sequence[Node], *, limit: int = MAX_BARS
) -> Bars:
    merged = _merged(_all_bars(allocation_spans, nodes))
    if len(merged) <= limit:
        return Bars(tuple(merged), ())
    # The sort is stable, so that equal runs give an identical page.
    by_size = sorted(range(len(merged)), key=lambda index: -merged[index].gpu_s)
    kept = set(by_size[:limit])
    return Bars(
        tuple(bar for index, bar in enumerate(merged) if index in kept),
        tuple(bar for index, bar in enumerate(merged) if index not in kept),
    )


def _all_bars(allocation_spans: Sequence[AllocationSpan], nodes: Sequence[Node]) -> Iterator[Bar]:
    rows = first_rows(nodes)
    positions = {
        node.id: {gpu.index: place for place, gpu in enumerate(node.gpus)} for node in nodes
    }
    lanes = _Lanes()
    for span in sorted(allocation_spans, key=lambda span: (span.start_s, span.end_s)):
        if span.end_s <= span.start_s:
            continue
        for node, places in _whole_gpus(span.allocation, positions).items():
            for first, height in _stretches(places):
                row = rows[node] + first
                yield Bar(span.job_id, node, row, height, span.start_s, span.end_s)
        for slot in span.allocation:
            if slot.fraction < 1 and slot.gpus:
                row = rows[slot.node] + positions[slot.node][slot.gpus[0]]
                bar = Bar(span.job_id, slot.node, row, slot.fraction, *_time(span))
                yield lanes.placed(bar)


def _time(span: AllocationSpan) -> tuple[float, float]:
    return span.start_s, span.end_s


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
    """Yield runs of neighbouring places, as (first, count)."""
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
    """Assigns each share of a GPU a free part of the row of the GPU."""

    def __init__(self) -> None:
        self._present: dict[float, list[Bar]] = {}

    def placed(self, bar: Bar) -> Bar:
        others = [other for other in self._present.get(bar.row, []) if other.end_s > bar.start_s]
        offset = 0.0
        for other in sorted(others, key=lambda other: other.row):
            if bar.row + offset + bar.height <= other.row + ROUNDING:
                break
            offset = other.row + other.height - bar.row
        # Fragmented free space may be too small for the share, which then overlaps its neighbours.
        lane = replace(bar, row=bar.row + min(offset, 1 - bar.height))
        self._present[bar.row] = [*others, lane]
        return lane
