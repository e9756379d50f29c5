"""Joins the scheduler's reason why a job waits (`core.explain`) with its planned move."""

from __future__ import annotations

from typing import Protocol

from rota.core.model.job import Job
from rota.daemon.jobs.views import why
from rota.daemon.runtime.scheduling_loop import SchedulingLoop


class MoveDescriber(Protocol):
    def describe(self, job: Job) -> str:
        """Where a queued job will move, and when; empty without a planned move."""
        ...


class WaitReasons:
    def __init__(self, scheduling_loop: SchedulingLoop, moves: MoveDescriber) -> None:
        self._scheduling_loop = scheduling_loop
        self._moves = moves

    def why(self, job: Job) -> str:
        """Empty for a job that runs or is over."""
        reasons = (why(job, self._scheduling_loop.newest), self._moves.describe(job))
        return "; ".join(each for each in reasons if each)
