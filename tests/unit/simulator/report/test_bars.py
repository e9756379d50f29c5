"""Bars of the Gantt chart: rows, merging, shares, and the limit."""

from __future__ import annotations

from rota.core.model.allocation import Slot
from rota.core.model.job import JobId
from rota.core.model.node import Gpu, Node, NodeId
from rota.simulator.metrics import AllocationSpan, SimulationRun
from rota.simulator.report.bars import bars
from rota.simulator.report.gantt import gantt

A, B = NodeId("a"), NodeId("b")
NODES = tuple(Node(node, tuple(Gpu(index, "A100") for index in range(4))) for node in (A, B))


def span(job: str, *slots: Slot, start: float = 0.0, end: float = 10.0) -> AllocationSpan:
    return AllocationSpan(JobId(job), slots, start, end)


def boxes(*allocation_spans: AllocationSpan) -> list[tuple[str, float, float, float, float]]:
    drawn = bars(allocation_spans, NODES).drawn
    return [(bar.job_id, bar.row, bar.height, bar.start_s, bar.end_s) for bar in drawn]


def test_neighbouring_gpus_of_a_node_are_one_bar_and_others_are_not():
    held = span("j", Slot(A, (0,)), Slot(A, (1,)), Slot(A, (3,)), Slot(B, (0,)))
    assert boxes(held) == [("j", 0, 2, 0, 10), ("j", 3, 1, 0, 10), ("j", 4, 1, 0, 10)]


def test_consecutive_spans_are_one_bar():
    first = span("j", Slot(A, (0,)))
    assert boxes(first, span("j", Slot(A, (0,)), start=10, end=20)) == [("j", 0, 1, 0, 20)]
    assert len(boxes(first, span("j", Slot(A, (0,)), start=11, end=20))) == 2
    assert len(boxes(first, span("k", Slot(A, (0,)), start=10, end=20))) == 2


def test_sharers_lie_beside_each_other():
    half = {"share_bytes": 8, "fraction": 0.5}
    assert boxes(
        span("j", Slot(A, (1,), **half)),
        span("k", Slot(A, (1,), **half)),
        span("l", Slot(A, (1,), **half), start=10, end=20),
    ) == [("j", 1, 0.5, 0, 10), ("k", 1.5, 0.5, 0, 10), ("l", 1, 0.5, 10, 20)]


def test_jobs_without_gpus_and_without_time_have_no_bar():
    assert boxes(span("cpu", Slot(A)), span("j", Slot(A, (0,)), end=0.0)) == []


def test_the_largest_bars_are_drawn_and_the_rest_is_left_out():
    small = span("small", Slot(A, (0,)), end=1.0)
    large = span("large", Slot(B, (0, 1, 2, 3)), end=9.0)
    got = bars([small, large], NODES, limit=1)
    assert [bar.job_id for bar in got.drawn] == ["large"]
    assert [bar.job_id for bar in got.left_out] == ["small"]
    assert got.drawn_share == 36 / 37


def test_a_big_run_is_capped_and_shaded():
    allocation_spans = tuple(
        span(f"j{at}", Slot(A, (at % 4,)), start=float(at), end=at + 1.0 + at % 7)
        for at in range(6_000)
    )
    run = SimulationRun(
        "fifo", 8, (), allocation_spans, ((0.0, 4.0), (6_000.0, 0.0)), 0, 0, 0, 0, ()
    )
    html = gantt(run, NODES, horizon_s=6_010.0)
    assert html.count("<rect") == 4_000
    assert "4,000 largest of 6,000" in html
    assert 'class="shade' in html
