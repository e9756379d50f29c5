"""Timers of jobs: the end of a back-off, a time limit, or the end of the grace period of a program
that was asked to stop."""

from __future__ import annotations

import heapq
import math

from rota.core.model.job import Job, JobId, Queued, Running, Starting, Stopping


class Timers:
    """At most one timer for each job. Setting a timer replaces the job's earlier timer."""

    def __init__(self) -> None:
        self._due_s: dict[JobId, float] = {}
        self._heap: list[tuple[float, JobId]] = []

    def set(self, job: Job) -> None:
        """Set, replace or remove the job's timer, depending on its state."""
        due_s = _due_s(job)
        if math.isinf(due_s):
            self._due_s.pop(job.id, None)
        elif self._due_s.get(job.id) != due_s:
            self._due_s[job.id] = due_s
            heapq.heappush(self._heap, (due_s, job.id))

    def next_s(self) -> float:
        """When the next timer is due; infinite if none is set."""
        while self._heap:
            due_s, job_id = self._heap[0]
            if self._due_s.get(job_id) == due_s:
                return due_s
            heapq.heappop(self._heap)
        return math.inf

    def take_due(self, now: float) -> list[JobId]:
        """The jobs whose timer is due. Each due timer is returned once and removed."""
        due: list[JobId] = []
        while self.next_s() <= now:
            _, job_id = heapq.heappop(self._heap)
            del self._due_s[job_id]
            due.append(job_id)
        return due


def _due_s(job: Job) -> float:
    match job.phase:
        case Queued(since_s=since_s, not_before_s=until_s) if until_s > since_s:
            return until_s
        case Starting() | Running():
            return job.service.as_of_s + job.spec.time_limit_s - job.service.running_s
        case Stopping(insists_at_s=float(until_s)):
            return until_s
        case _:
            return math.inf
