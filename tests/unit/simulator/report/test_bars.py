"""From tenures to bars: rows, merging, shares, and what is left out."""

from __future__ import annotations

from rota.core.model import Gpu, JobId, Node, NodeId, Slot
from rota.simulator.report.bars import bars
from rota.simulator.report.gantt import gantt
from rota.simulator.results import Run, Tenure

A, B = NodeId("a"), NodeId("b")
NODES = tuple(Node(node, tuple(Gpu(index, "A100") for index in range(4))) for node in (A, B))


def tenure(job: str, *slots: Slot, start: float = 0.0, end: float = 10.0) -> Tenure:
    return Tenure(JobId(job), slots, start, end)


def boxes(*tenures: Tenure) -> list[tuple[str, float, float, float, float]]:
    drawn = bars(tenures, NODES).drawn
    return [(bar.job_id, bar.row, bar.height, bar.start_s, bar.end_s) for bar in drawn]


def test_neighbouring_gpus_of_a_node_are_one_bar_and_others_are_not():
    held = tenure("j", Slot(A, (0,)), Slot(A, (1,)), Slot(A, (3,)), Slot(B, (0,)))
    assert boxes(held) == [("j", 0, 2, 0, 10), ("j", 3, 1, 0, 10), ("j", 4, 1, 0, 10)]


def test_tenures_without_a_gap_are_one_bar():
    first = tenure("j", Slot(A, (0,)))
    assert boxes(first, tenure("j", Slot(A, (0,)), start=10, end=20)) == [("j", 0, 1, 0, 20)]
    assert len(boxes(first, tenure("j", Slot(A, (0,)), start=11, end=20))) == 2
    assert len(boxes(first, tenure("k", Slot(A, (0,)), start=10, end=20))) == 2


def test_sharers_lie_beside_each_other():
    half = {"share_bytes": 8, "fraction": 0.5}
    assert boxes(
        tenure("j", Slot(A, (1,), **half)),
        tenure("k", Slot(A, (1,), **half)),
        tenure("l", Slot(A, (1,), **half), start=10, end=20),
    ) == [("j", 1, 0.5, 0, 10), ("k", 1.5, 0.5, 0, 10), ("l", 1, 0.5, 10, 20)]


def test_jobs_without_gpus_and_without_time_have_no_bar():
    assert boxes(tenure("cpu", Slot(A)), tenure("j", Slot(A, (0,)), end=0.0)) == []


def test_the_largest_stay_and_the_rest_is_told():
    small = tenure("small", Slot(A, (0,)), end=1.0)
    large = tenure("large", Slot(B, (0, 1, 2, 3)), end=9.0)
    got = bars([small, large], NODES, most=1)
    assert [bar.job_id for bar in got.drawn] == ["large"]
    assert [bar.job_id for bar in got.left_out] == ["small"]
    assert got.drawn_share == 36 / 37


def test_a_big_run_is_capped_and_shaded():
    tenures = tuple(
        tenure(f"j{at}", Slot(A, (at % 4,)), start=float(at), end=at + 1.0 + at % 7)
        for at in range(6_000)
    )
    run = Run("fifo", 8, (), tenures, ((0.0, 4.0), (6_000.0, 0.0)), 0, 0, 0, 0, ())
    html = gantt(run, NODES, horizon_s=6_010.0)
    assert html.count("<rect") == 4_000
    assert "4,000 largest of 6,000" in html
    assert 'class="shade' in html
