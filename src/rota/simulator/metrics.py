"""The result of a simulated run, and the metrics computed from it.

The recorder fills a `SimulationRun`, the CLI prints its `RunMetrics`, and the report shows both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rota.core.model.allocation import Allocation
from rota.core.model.job import JobId

Floats = NDArray[np.float64]

UNFAIR_ABOVE = 1.05
"""A job is unfairly treated if its completion time is over 5 % above its fair time."""


@dataclass(frozen=True, slots=True)
class AllocationSpan:
    """A period in which a job held the same allocation."""

    job_id: JobId
    allocation: Allocation
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a job. The time of an event that never happened is infinite.

    `waited_s` is the total time in the queue, `gpu_s` the GPU-seconds held, `fair_s` the completion
    time on an equal share of the cluster (see `fairness`).
    """

    job_id: JobId
    name: str
    submitted_s: float
    first_started_s: float
    finished_s: float
    waited_s: float
    gpu_s: float
    fair_s: float


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """The simulation of a trace under one policy.

    `policy` is the text that selects the policy on the command line. `usage` has pairs of time and
    GPUs held from then on, in order of time. `allocation_spans` is empty unless the options ask for
    it. `decision_s` has the wall time of each round, the only part that differs between equal runs.
    """

    policy: str
    cluster_gpus: int
    outcomes: tuple[Outcome, ...]
    allocation_spans: tuple[AllocationSpan, ...]
    usage: tuple[tuple[float, float], ...]
    preemptions: int
    resizes: int
    moves: int
    rounds: int
    decision_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """The metrics of one run, defined in `docs/reference/simulate.md`.

    None marks a metric without a value, such as the mean completion time when no job finished. The
    field names are the keys of `rota simulate --json`.
    """

    policy: str
    jobs: int
    finished: int
    mean_jct_s: float | None
    p50_jct_s: float | None
    p95_jct_s: float | None
    p99_jct_s: float | None
    makespan_s: float | None
    mean_wait_s: float | None
    utilisation: float | None
    gpu_hours: float
    preemptions: int
    resizes: int
    moves: int
    rounds: int
    decision_ms_p50: float | None
    decision_ms_p99: float | None
    decision_ms_max: float | None
    worst_unfairness: float | None
    unfair_share: float | None


def compute_metrics(run: SimulationRun) -> RunMetrics:
    submitted = np.array([outcome.submitted_s for outcome in run.outcomes], dtype=np.float64)
    finished = np.array([outcome.finished_s for outcome in run.outcomes], dtype=np.float64)
    fair = np.array([outcome.fair_s for outcome in run.outcomes], dtype=np.float64)
    is_done = np.isfinite(finished)
    jct = (finished - submitted)[is_done]
    waits = np.array([outcome.waited_s for outcome in run.outcomes], dtype=np.float64)
    unfairness = _unfairness(jct, fair[is_done])
    first_s = float(submitted.min()) if submitted.size else 0.0
    makespan = float(finished[is_done].max()) - first_s if jct.size else None
    decision_ms = np.array(run.decision_s, dtype=np.float64) * 1000
    return RunMetrics(
        policy=run.policy,
        jobs=len(run.outcomes),
        finished=int(is_done.sum()),
        mean_jct_s=_mean(jct),
        p50_jct_s=_percentile(jct, 50),
        p95_jct_s=_percentile(jct, 95),
        p99_jct_s=_percentile(jct, 99),
        makespan_s=makespan,
        mean_wait_s=_mean(waits[np.isfinite(waits)]),
        utilisation=_utilisation(run, first_s, makespan_s=makespan),
        gpu_hours=math.fsum(outcome.gpu_s for outcome in run.outcomes) / 3600,
        preemptions=run.preemptions,
        resizes=run.resizes,
        moves=run.moves,
        rounds=run.rounds,
        decision_ms_p50=_percentile(decision_ms, 50),
        decision_ms_p99=_percentile(decision_ms, 99),
        decision_ms_max=_percentile(decision_ms, 100),
        worst_unfairness=_percentile(unfairness, 100),
        unfair_share=_mean((unfairness > UNFAIR_ABOVE).astype(np.float64)),
    )


def mean_usage(usage: Sequence[tuple[float, float]], edges: Floats) -> Floats:
    """Return the time-weighted mean of GPUs held between each edge and the next."""
    if not usage:
        return np.zeros(max(len(edges) - 1, 0))
    times, held = np.array(usage, dtype=np.float64).T
    # GPU-seconds held up to each change. Between two changes the integral is linear.
    area = np.concatenate(([0.0], np.cumsum(held[:-1] * np.diff(times))))
    at = np.clip(np.searchsorted(times, edges, side="right") - 1, 0, None)
    up_to_edge = area[at] + held[at] * np.maximum(edges - times[at], 0.0)
    return np.diff(up_to_edge) / np.diff(edges)


def _utilisation(run: SimulationRun, start_s: float, *, makespan_s: float | None) -> float | None:
    if not run.cluster_gpus or not makespan_s:
        return None
    (mean,) = mean_usage(run.usage, np.array([start_s, start_s + makespan_s]))
    return float(mean) / run.cluster_gpus


def _unfairness(jct: Floats, fair: Floats) -> Floats:
    """Skip jobs without a fair time: jobs without work, or of unknown length."""
    has_fair_time = np.isfinite(fair) & (fair > 0)
    return jct[has_fair_time] / fair[has_fair_time]


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if values.size else None


def _percentile(values: Floats, percent: float) -> float | None:
    """Interpolate linearly between the two nearest ranks, as the scripts of the papers do."""
    return float(np.percentile(values, percent)) if values.size else None
