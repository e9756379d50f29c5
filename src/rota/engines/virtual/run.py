"""One attempt of a job in virtual time: its work, its progress and its live workers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from rota.core.model.allocation import Allocation, Slot
from rota.core.model.commands import ChangeMembership
from rota.core.model.events import Event, ProgressReported, WorkersExited, WorkersStarted
from rota.core.model.job import JobId

Fence = tuple[JobId, int]
"""A job and its attempt."""
WorkerExitCodes = dict[int, int | None]
"""Exit codes of ended workers. None: the worker was lost with its node."""
LOST = None
REPORTS_MAX = 50
"""Upper bound of progress reports per job, so that a job of many epochs stays cheap."""


@dataclass(frozen=True, slots=True)
class VirtualWork:
    """The work of a job and its total duration on a given allocation. A program that is not
    resumable saves and reports nothing: every attempt starts from zero."""

    epochs: float
    run_s: Callable[[Allocation], float]
    is_resumable: bool = True


@dataclass(frozen=True, slots=True)
class Delays:
    """Durations of the engine's operations: to start all workers, to stop all workers, and to
    change the membership of a running job."""

    start_s: float = 0.0
    stop_s: float = 0.0
    switch_s: float = 0.0


@dataclass(slots=True)
class VirtualRun:
    """One attempt. `done` (0 to 1) is the progress at time `since_s`. The run makes no progress
    while `since_s` is infinite."""

    fence: Fence
    work: VirtualWork
    allocation: Allocation
    """Slots of the current generation. `workers` also holds the members of the next one."""
    workers: dict[int, Slot]
    done: float
    since_s: float = math.inf
    has_started: bool = False
    generation: int = 0
    joining: ChangeMembership | None = None
    stops_at_s: float = math.inf
    gone: WorkerExitCodes = field(default_factory=WorkerExitCodes)
    version: int = 0
    """Increases when the future of the run changes; older events in the queue are then void."""

    @property
    def alive(self) -> frozenset[int]:
        return frozenset(self.workers.keys() - self.gone.keys())

    @property
    def is_whole(self) -> bool:
        """Whether all workers have started and none has ended."""
        return self.has_started and self.gone.keys().isdisjoint(self.workers)

    @property
    def run_s(self) -> float:
        return self.work.run_s(self.allocation)

    @property
    def can_switch(self) -> bool:
        """Whether all members of the next generation are alive."""
        return self.joining is not None and self.gone.keys().isdisjoint(self.joining.workers)

    def advance(self, now: float) -> None:
        if now > self.since_s:
            self.done = min(1.0, self.done + (now - self.since_s) / self.run_s)
            self.since_s = now
        self.version += 1

    def next_events(self, *, reported: float) -> tuple[float, tuple[Event, ...]]:
        """Return the next events and their time if nothing changes. `reported` is the progress
        (0 to 1) that was reported last."""
        end_s = self.since_s + (1 - self.done) * self.run_s
        if not self.work.is_resumable:
            return end_s, (self.exits(0),)
        n_reports = min(self.work.epochs, REPORTS_MAX)
        next_done = (math.floor(reported * n_reports + 1e-6) + 1) / n_reports
        if next_done >= 1 - 1e-9:
            return end_s, (self.progress(1.0), self.exits(0))
        at_s = self.since_s + max(0.0, next_done - self.done) * self.run_s
        return at_s, (self.progress(next_done, self.run_s / self.work.epochs),)

    def exits(self, code: int) -> WorkersExited:
        return WorkersExited(*self.fence, dict.fromkeys(sorted(self.alive), code))

    def started(self) -> WorkersStarted:
        return WorkersStarted(*self.fence, frozenset(self.workers))

    def progress(self, done: float, epoch_s: float | None = None) -> ProgressReported:
        """A virtual program saves all its progress."""
        epochs = done * self.work.epochs
        return ProgressReported(*self.fence, epochs, epoch_s, saved=epochs)
