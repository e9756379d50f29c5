"""Metrics as table columns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rota.simulator.metric_table import (
    CLUSTER,
    COMPLETION,
    NO_VALUE,
    MetricColumn,
    columns,
    duration,
)
from rota.simulator.metrics import RunMetrics

ROW = RunMetrics(
    policy="fifo",
    jobs=10,
    finished=10,
    mean_jct_s=7200.0,
    p50_jct_s=3600.0,
    p95_jct_s=14_400.0,
    p99_jct_s=18_000.0,
    makespan_s=36_000.0,
    mean_wait_s=5.0,
    utilisation=0.5,
    gpu_hours=1234.5,
    preemptions=0,
    resizes=0,
    moves=0,
    rounds=20,
    decision_ms_p50=1.0,
    decision_ms_p99=2.0,
    decision_ms_max=3.0,
    worst_unfairness=2.0,
    unfair_share=0.25,
)


def test_all_times_of_a_group_share_the_unit_that_most_of_them_reach():
    units = [column.unit for column in columns(COMPLETION, [ROW])]
    assert units == ["", "", "h", "h", "h", "h", "h", "h"]
    minutes = replace(ROW, mean_jct_s=600.0, p50_jct_s=300.0)
    assert {column.unit for column in columns(COMPLETION, [minutes])} == {"", "min"}


def test_cells_and_their_best():
    other = replace(ROW, utilisation=0.9, gpu_hours=1234.4, worst_unfairness=None)
    assert columns(CLUSTER, [ROW, other]) == (
        MetricColumn("utilised", "%", ("50.0", "90.0"), frozenset({1})),
        # They differ, but not in what is shown.
        MetricColumn("held", "GPU h", ("1,234", "1,234"), frozenset()),
        MetricColumn("worst unfairness", "x", ("2.00", NO_VALUE), frozenset()),
        MetricColumn("unfair jobs", "%", ("25.0", "25.0"), frozenset()),
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.25, "0.2 s"), (59, "59 s"), (90, "1.5 min"), (7200, "2 h"), (172_800, "2 d")],
)
def test_durations_read_well(seconds: float, text: str):
    assert duration(seconds) == text
