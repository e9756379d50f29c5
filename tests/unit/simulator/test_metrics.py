"""Every measure against values worked out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from rota.core.model.job import JobId
from rota.simulator.metrics import Outcome, SimulationRun, compute_metrics, mean_usage


def outcome(name: str, submitted: float, finished: float, *, fair_s: float = 100.0) -> Outcome:
    started = submitted + 10 if math.isfinite(finished) else math.inf
    return Outcome(JobId(name), name, submitted, started, finished, 10.0, 3600.0, fair_s)


def run(*outcomes: Outcome, usage: tuple[tuple[float, float], ...] = ()) -> SimulationRun:
    return SimulationRun(
        policy="fifo",
        cluster_gpus=4,
        outcomes=outcomes,
        allocation_spans=(),
        usage=usage,
        preemptions=1,
        resizes=2,
        moves=3,
        rounds=4,
        decision_s=(0.001, 0.002, 0.003, 0.010),
    )


def test_completion_times_are_of_finished_jobs_with_linear_percentiles():
    got = compute_metrics(
        run(outcome("a", 0, 100), outcome("b", 50, 250), outcome("c", 60, math.inf))
    )
    assert (got.jobs, got.finished) == (3, 2)
    assert got.mean_jct_s == 150.0
    assert got.p50_jct_s == 150.0
    assert got.p95_jct_s == pytest.approx(195.0)
    assert got.p99_jct_s == pytest.approx(199.0)
    assert got.makespan_s == 250.0


def test_waits_and_gpu_hours_are_of_all_jobs():
    got = compute_metrics(run(outcome("a", 0, 100), outcome("b", 0, math.inf)))
    assert got.mean_wait_s == 10.0
    assert got.gpu_hours == 2.0


def test_makespan_starts_with_the_first_submission():
    assert compute_metrics(run(outcome("a", 1000, 1100))).makespan_s == 100.0


def test_utilisation_is_gpu_time_held_within_the_makespan():
    usage = ((0.0, 4.0), (50.0, 2.0), (100.0, 4.0))
    got = compute_metrics(run(outcome("a", 0, 100), usage=usage))
    assert got.utilisation == pytest.approx((4 * 50 + 2 * 50) / (4 * 100))


def test_unfairness_is_completion_over_fair_time():
    got = compute_metrics(
        run(
            outcome("a", 0, 105, fair_s=100),
            outcome("b", 0, 300, fair_s=100),
            outcome("no work", 0, 300, fair_s=0),
            outcome("of unknown length", 0, 300, fair_s=math.inf),
        )
    )
    assert got.worst_unfairness == 3.0
    assert got.unfair_share == 0.5


def test_decision_times_are_in_milliseconds():
    got = compute_metrics(run(outcome("a", 0, 100)))
    assert got.decision_ms_p50 == pytest.approx(2.5)
    assert got.decision_ms_max == pytest.approx(10.0)


def test_metrics_without_jobs_are_none():
    got = compute_metrics(replace(run(), rounds=0, decision_s=()))
    assert [name for name, value in asdict(got).items() if value is None] == [
        "mean_jct_s",
        "p50_jct_s",
        "p95_jct_s",
        "p99_jct_s",
        "makespan_s",
        "mean_wait_s",
        "utilisation",
        "decision_ms_p50",
        "decision_ms_p99",
        "decision_ms_max",
        "worst_unfairness",
        "unfair_share",
    ]
    assert "NaN" not in json.dumps(asdict(got))


def test_when_none_finished_only_the_waits_are_known():
    got = compute_metrics(run(outcome("a", 0, math.inf)))
    assert got.finished == 0
    assert got.mean_jct_s is None
    assert got.mean_wait_s == 10.0
    assert "Infinity" not in json.dumps(asdict(got))


def test_a_cluster_without_gpus_has_no_utilisation():
    assert compute_metrics(replace(run(outcome("a", 0, 100)), cluster_gpus=0)).utilisation is None


def test_jobs_without_length_make_no_utilisation():
    assert compute_metrics(run(outcome("a", 5, 5))).utilisation is None


def test_mean_usage_is_exact_in_every_bin():
    usage = ((10.0, 2.0), (20.0, 4.0), (40.0, 0.0))
    edges = np.array([0.0, 10.0, 15.0, 25.0, 50.0])
    assert mean_usage(usage, edges).tolist() == [0.0, 2.0, 3.0, 2.4]
    assert mean_usage((), edges).tolist() == [0.0] * 4
