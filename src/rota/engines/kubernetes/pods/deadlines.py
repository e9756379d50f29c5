"""Time limits for pods that cannot be created, scheduled or started, and for adopted workers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rota.engines.interface import WorkerId
from rota.engines.kubernetes.pods.start_problems import StartProblem
from rota.engines.kubernetes.pods.state import PodStage, PodState
from rota.engines.kubernetes.pods.termination import CANNOT_RUN, PodTermination
from rota.engines.kubernetes.settings import KubernetesSettings

POD_BEING_CREATED = StartProblem("its node is creating it", is_unclear=True)
NOT_SCHEDULED_YET = StartProblem(
    "the cluster's scheduler has not tried to place it yet", is_unclear=True
)
EVENTS_INTERVAL_S = 15.0
ADOPTION_TIMEOUT_S = 15.0
"""A worker that the kernel did not mention within this time is reported as found, so that the
kernel stops it."""


@dataclass(frozen=True, slots=True)
class _Seen:
    problem: StartProblem
    since_s: float
    events_read_s: float = -math.inf
    is_reported: bool = False

    def is_like(self, other: StartProblem) -> bool:
        mine = self.problem
        if mine.is_unclear:
            return mine == other
        return _kind(mine) == _kind(other)


def _problem_key(worker: WorkerId, seen: _Seen) -> tuple[str, int, str]:
    return worker.job_id, worker.attempt, seen.problem.message


def _kind(problem: StartProblem) -> tuple[bool, bool, bool]:
    return problem.is_race, problem.is_unclear, problem.is_outage


class StartDeadlines:
    """Knows since when each worker has a start problem, and which of them are too old."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._seen: dict[WorkerId, _Seen] = {}

    def see(self, worker: WorkerId, problem: StartProblem | None, *, now: float) -> None:
        """Set the current problem of a worker. Its message may change; a problem of the same
        kind keeps its start time."""
        if problem is None:
            self._seen.pop(worker, None)
            return
        known = self._seen.get(worker)
        if known is not None and known.is_like(problem):
            self._seen[worker] = replace(known, problem=problem)
        else:
            self._seen[worker] = _Seen(problem, now)

    def unreported(self, now: float) -> dict[WorkerId, str]:
        """Lasting problems that were not reported yet, for the job's owner. Workers of one
        attempt with the same problem are reported once."""
        reported = {
            _problem_key(worker, seen) for worker, seen in self._seen.items() if seen.is_reported
        }
        found: dict[WorkerId, str] = {}
        for worker, seen in list(self._seen.items()):
            if seen.is_reported or not self._may_last(seen, now):
                continue
            self._seen[worker] = replace(seen, is_reported=True)
            if _problem_key(worker, seen) not in reported:
                reported.add(_problem_key(worker, seen))
                found[worker] = seen.problem.message
        return found

    def _may_last(self, seen: _Seen, now: float) -> bool:
        if seen.problem.is_unclear:
            return self._is_late(seen, now)
        return not seen.problem.is_race

    def expired(self, now: float) -> dict[WorkerId, PodTermination]:
        """The terminations of workers whose time limit has passed, each once."""
        late = {
            worker: termination_for(seen.problem)
            for worker, seen in self._seen.items()
            if self._is_late(seen, now) and not seen.problem.is_unclear
        }
        for worker in late:
            del self._seen[worker]
        return late

    def unclear(self, now: float) -> list[WorkerId]:
        """Workers over their time limit that may have no problem: their events have to be read,
        at intervals."""
        late = [
            worker
            for worker, seen in self._seen.items()
            if seen.problem.is_unclear
            and self._is_late(seen, now)
            and now - seen.events_read_s >= EVENTS_INTERVAL_S
        ]
        for worker in late:
            self._seen[worker] = replace(self._seen[worker], events_read_s=now)
        return late

    def _is_late(self, seen: _Seen, now: float) -> bool:
        settings = self._settings
        is_race = seen.problem.is_race
        patience_s = settings.bind_patience_s if is_race else settings.stuck_after_s
        return now - seen.since_s >= patience_s


def possible_problem(pod_state: PodState, problem: StartProblem | None) -> StartProblem | None:
    """The problem of a pod, or an unclear one if the pod only waits."""
    if problem is not None or pod_state.stage is not PodStage.WAITING:
        return problem
    return POD_BEING_CREATED if pod_state.node else NOT_SCHEDULED_YET


def termination_for(problem: StartProblem) -> PodTermination:
    """A lost race or an outage does not count as a failure of the job. Any other problem would
    happen again."""
    if problem.is_transient:
        return PodTermination(-1, problem.message, is_lost=True, is_refused=problem.is_refusal)
    return PodTermination(CANNOT_RUN, f"{problem.message}; {problem.hint}")


class AdoptionDeadlines:
    """Workers that existed at the start and that the kernel has not mentioned yet."""

    def __init__(self) -> None:
        self._due_s: dict[WorkerId, float] = {}

    def wait_for(self, worker: WorkerId, *, now: float) -> None:
        self._due_s[worker] = now + ADOPTION_TIMEOUT_S

    def confirm(self, worker: WorkerId) -> bool:
        """The kernel knows the worker. True if that was open until now."""
        return self._due_s.pop(worker, None) is not None

    def overdue(self, now: float) -> list[WorkerId]:
        """Workers that were not confirmed in time, each once."""
        found = [worker for worker, due_s in self._due_s.items() if due_s <= now]
        for worker in found:
            del self._due_s[worker]
        return found
