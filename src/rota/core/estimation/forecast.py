"""Forecasts when jobs start and finish, by running the kernel forward in virtual time.

The forecast uses the same kernel, rounds and policy as the daemon. It works on a copy: the kernel
in use only provides its immutable values. A what-if question is a forecast of a situation with
another job or node in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from rota.core.estimation.virtual_time_loop import EngineModel, VirtualTimeLoop
from rota.core.kernel.kernel import Kernel
from rota.core.lifecycle.states import JobState
from rota.core.model.effects import Effects
from rota.core.model.job import Job, JobId
from rota.core.model.node import Node
from rota.core.scheduling.policy_api import Policy
from rota.core.scheduling.round import decide
from rota.core.scheduling.view import Rules

TERMINAL_STATES = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
EngineFactory = Callable[[Iterable[Job], float], EngineModel]
"""Builds an engine model in which these jobs have their progress at that time, and continue at
their known speeds."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The state that a forecast starts from."""

    jobs: tuple[Job, ...]
    nodes: tuple[Node, ...]
    rules: Rules
    outcomes: Mapping[JobId, JobState] = field(default_factory=dict[JobId, JobState])


@dataclass(frozen=True, slots=True)
class JobForecast:
    """The next start of a job (for a running job, its first start) and its end; infinite if
    unknown.

    `error` is relative, for the time from now on: the error of the job's own speed, or of a speed
    that it waits for, whichever is larger.
    """

    start_s: float = math.inf
    finish_s: float = math.inf
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Horizon:
    """The limit of a forecast: a time and a number of rounds."""

    until_s: float = math.inf
    max_rounds: float = math.inf


def forecast(
    situation: Situation,
    policy: Policy,
    *,
    engine_of: EngineFactory,
    now: float,
    horizon: Horizon | None = None,
) -> dict[JobId, JobForecast]:
    """The forecast of every job that has not ended, as far as the horizon reaches."""
    kernel = Kernel(situation.rules)
    recorder = _ForecastRecorder(situation.jobs)
    loop = VirtualTimeLoop(
        kernel,
        engine_of(situation.jobs, now),
        decide=lambda view: decide(view, policy),
        record=recorder.record,
        start_s=now,
    )
    recovered = kernel.recover(
        situation.jobs, situation.nodes, outcomes=situation.outcomes, now=now
    )
    loop.carry_out(recovered)
    bound = horizon or Horizon()
    loop.run((), bound.until_s, max_rounds=bound.max_rounds)
    return recorder.forecasts


class _ForecastRecorder:
    """Records starts and ends as they happen."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.forecasts = {
            job.id: JobForecast(
                start_s=job.first_started_s if job.is_active else math.inf, error=job.speed.error
            )
            for job in jobs
        }
        self._error = 0.0
        """The largest error of all jobs that have ended so far."""

    def record(self, now: float, effects: Effects) -> None:
        for row in effects.transitions:
            current = self.forecasts[row.job_id]
            if row.after is JobState.STARTING and math.isinf(current.start_s):
                error = max(current.error, self._error)
                self.forecasts[row.job_id] = replace(current, start_s=now, error=error)
            elif row.after in TERMINAL_STATES:
                self._error = max(self._error, current.error)
                self.forecasts[row.job_id] = replace(current, finish_s=now)
