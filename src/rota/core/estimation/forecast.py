"""When jobs will start and finish, by running the kernel forward.

The very same kernel, rounds and policy decide on virtual time; nothing is guessed about queues.
The kernel that is asked about only lends its values, which nobody can change. A what-if question
is the same question about a situation with another job or node in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from rota.core.effects import Effects
from rota.core.kernel import Kernel
from rota.core.model import Job, JobId, Node
from rota.core.policy import Policy
from rota.core.replay import EngineModel, Replay
from rota.core.round import decide
from rota.core.states import State
from rota.core.view import Rules

OVER = (State.SUCCEEDED, State.FAILED, State.CANCELLED)
EngineFactory = Callable[[Iterable[Job], float], EngineModel]
"""Makes an engine model in which these jobs are as far as they are at that time, and go on at the
speeds that they are known to have."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a forecast starts from."""

    jobs: tuple[Job, ...]
    nodes: tuple[Node, ...]
    rules: Rules
    outcomes: Mapping[JobId, State] = field(default_factory=dict[JobId, State])


@dataclass(frozen=True, slots=True)
class Expected:
    """A job's next start (or, if it runs, its first one) and its end; infinite if that is not to
    be foreseen. `error` is relative, for the time from now on: that of the job's own speed, or of
    a speed on which it has to wait, whichever is larger."""

    start_s: float = math.inf
    finish_s: float = math.inf
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Horizon:
    """How far a forecast looks: up to a moment, and through so many rounds."""

    until_s: float = math.inf
    most_rounds: float = math.inf


def forecast(
    situation: Situation,
    policy: Policy,
    *,
    engine_of: EngineFactory,
    now: float,
    horizon: Horizon | None = None,
) -> dict[JobId, Expected]:
    """What to expect of every job that is not over, as far as it is within the horizon."""
    kernel = Kernel(situation.rules)
    watch = _Watch(situation.jobs)
    replay = Replay(
        kernel,
        engine_of(situation.jobs, now),
        decide=lambda view: decide(view, policy),
        record=watch.record,
        start_s=now,
    )
    recovered = kernel.recover(
        situation.jobs, situation.nodes, outcomes=situation.outcomes, now=now
    )
    replay.carry_out(recovered)
    bound = horizon or Horizon()
    replay.run((), bound.until_s, most_rounds=bound.most_rounds)
    return watch.expected


class _Watch:
    """Notes starts and ends as they come."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.expected = {
            job.id: Expected(
                start_s=job.first_started_s if job.is_active else math.inf, error=job.speed.error
            )
            for job in jobs
        }
        self._error = 0.0
        """The largest error of those that have ended by now."""

    def record(self, now: float, effects: Effects) -> None:
        for row in effects.transitions:
            expected = self.expected[row.job_id]
            if row.after is State.STARTING and math.isinf(expected.start_s):
                error = max(expected.error, self._error)
                self.expected[row.job_id] = replace(expected, start_s=now, error=error)
            elif row.after in OVER:
                self._error = max(self._error, expected.error)
                self.expected[row.job_id] = replace(expected, finish_s=now)
