"""The line charts: completion times of all policies, and GPUs in use per policy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rota.simulator.metric_table import duration
from rota.simulator.metrics import SimulationRun, mean_usage
from rota.simulator.report.axis import TimeAxis, log_axis, part_grid, time_grid
from rota.svg import Frame, figure, num, safe, tag

MAX_STEPS = 400
MAX_BINS = 600
N_COLOURS = 8
N_SOLID = 4
CDF_FRAME = Frame(left=52, top=12, width=1012, height=300)
USAGE_FRAME = Frame(left=44, top=10, width=462, height=96)


def series(index: int) -> str:
    """Return the CSS classes of a policy's line: colour, and dashes for colour-blind readers."""
    return f"s{index % N_COLOURS} d{index // N_SOLID % 3}"


def start_s(run: SimulationRun) -> float:
    return min((outcome.submitted_s for outcome in run.outcomes), default=0.0)


def end_s(run: SimulationRun) -> float:
    """Return when the last job finished, or the last change of usage if none did."""
    finished = [job.finished_s for job in run.outcomes if math.isfinite(job.finished_s)]
    return max(finished or [time for time, _ in run.usage] or [0.0])


def shared_horizon_s(runs: Sequence[SimulationRun]) -> float:
    """Return the length of the time axis that all policies share, to make them comparable."""
    return max([end_s(run) - start_s(run) for run in runs] + [1.0])


def completion_chart(runs: Sequence[SimulationRun]) -> str:
    times = [_completion_times(run) for run in runs]
    axis = log_axis(CDF_FRAME, [time for all_times in times for time in all_times])
    paths = [
        f'<path class="line {series(index)}" d="{_steps(done, axis, n_jobs=len(run.outcomes))}">'
        f"{tag('title', '', safe(run.policy))}</path>"
        for index, (run, done) in enumerate(zip(runs, times, strict=True))
        if done
    ]
    return figure(
        part_grid(CDF_FRAME, (0, 0.25, 0.5, 0.75, 1)),
        time_grid(axis),
        *paths,
        size=(1080, CDF_FRAME.bottom + 28),
        title="Fraction of jobs finished within a time after submission, one line per policy.",
        kind="chart",
    )


def usage_chart(run: SimulationRun, index: int, *, horizon_s: float) -> str:
    axis = TimeAxis(USAGE_FRAME, 0.0, horizon_s)
    return figure(
        part_grid(USAGE_FRAME, (0, 0.5, 1)),
        time_grid(axis),
        f'<path class="area {series(index)}" d="{_usage_area(run, axis)}"></path>',
        size=(520, USAGE_FRAME.bottom + 26),
        title=f"Fraction of GPUs in use over {duration(horizon_s)} under {run.policy}.",
        kind="chart",
    )


def legend(runs: Sequence[SimulationRun]) -> str:
    samples = (
        f'<li><svg class="key" viewBox="0 0 28 10" aria-hidden="true">'
        f'<path class="line {series(index)}" d="M1 5H27"></path></svg>{safe(run.policy)}</li>'
        for index, run in enumerate(runs)
    )
    return tag("ul", 'class="legend"', *samples)


def _completion_times(run: SimulationRun) -> list[float]:
    return sorted(
        job.finished_s - job.submitted_s for job in run.outcomes if math.isfinite(job.finished_s)
    )


def _steps(times: Sequence[float], axis: TimeAxis, *, n_jobs: int) -> str:
    """Draw a step up at each finished job, or at evenly selected jobs above `MAX_STEPS`."""
    even = np.linspace(1, len(times), min(len(times), MAX_STEPS))
    ranks: list[int] = np.unique(even.round().astype(np.int64)).tolist()
    parts = [f"M{num(axis.x(times[0]))} {num(axis.frame.bottom)}"]
    parts += (
        f"H{num(axis.x(times[rank - 1]))}V{num(axis.frame.y(rank / n_jobs))}" for rank in ranks
    )
    return "".join([*parts, f"H{num(axis.frame.right)}"])


def _usage_area(run: SimulationRun, axis: TimeAxis) -> str:
    frame = axis.frame
    parts = [f"M{num(frame.left)} {num(frame.bottom)}"]
    for time_s, gpus in _thinned_usage(run):
        part = gpus / run.cluster_gpus if run.cluster_gpus else 0.0
        parts.append(f"H{num(axis.x(time_s))}V{num(frame.y(part))}")
    end = axis.x(end_s(run) - start_s(run))
    return "".join([*parts, f"H{num(end)}V{num(frame.bottom)}Z"])


def _thinned_usage(run: SimulationRun) -> list[tuple[float, float]]:
    """Return every change of usage, or the means of equal bins above `MAX_BINS` changes.

    Time starts at the first submission.
    """
    start, end = start_s(run), end_s(run)
    inside = [(time - start, gpus) for time, gpus in run.usage if start <= time <= end]
    if len(inside) <= MAX_BINS or end <= start:
        return inside
    edges = np.linspace(start, end, MAX_BINS + 1)
    means = mean_usage(run.usage, edges)
    return list(zip((edges[:-1] - start).tolist(), means.tolist(), strict=True))
