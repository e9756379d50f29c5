"""One run in virtual time: what it has to do, how far it is, and who of its workers is left."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from rota.core.commands import ChangeMembership
from rota.core.events import Event, ProgressReported, WorkersExited, WorkersStarted
from rota.core.model import Allocation, JobId, Slot

Fence = tuple[JobId, int]
"""A job and its attempt."""
Gone = dict[int, int | None]
"""The workers that have ended, with their exit codes; None for one that went with its node."""
LOST = None
REPORTS_MAX = 50
"""Progress reports of one run at the most, however many epochs it has."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a job has to do, and how long all of it would take on given slots. A program that is
    not resumable saves and reports nothing, so that every start is a new beginning."""

    epochs: float
    run_s: Callable[[Allocation], float]
    is_resumable: bool = True


@dataclass(frozen=True, slots=True)
class Delays:
    """How long the engine takes: from an order to start until all workers run, from an order to
    stop until all are gone, and to switch the members of a job that goes on."""

    start_s: float = 0.0
    stop_s: float = 0.0
    switch_s: float = 0.0


@dataclass(slots=True)
class Run:
    """One attempt. Of its work `done` (a part of 1) was done by `since_s`; it stands still while
    that is infinite."""

    fence: Fence
    work: Work
    allocation: Allocation
    """Where the generation that stands works; `workers` are all, the next one's members, too."""
    workers: dict[int, Slot]
    done: float
    since_s: float = math.inf
    has_started: bool = False
    generation: int = 0
    joining: ChangeMembership | None = None
    stops_at_s: float = math.inf
    gone: Gone = field(default_factory=Gone)
    version: int = 0
    """Grows when the future of the run changes: what was expected before does not happen."""

    @property
    def alive(self) -> frozenset[int]:
        return frozenset(self.workers.keys() - self.gone.keys())

    @property
    def is_whole(self) -> bool:
        """All its workers came up, and none of them is gone."""
        return self.has_started and self.gone.keys().isdisjoint(self.workers)

    @property
    def run_s(self) -> float:
        return self.work.run_s(self.allocation)

    @property
    def can_switch(self) -> bool:
        """Whether all who are to go on are there."""
        return self.joining is not None and self.gone.keys().isdisjoint(self.joining.workers)

    def advance(self, now: float) -> None:
        if now > self.since_s:
            self.done = min(1.0, self.done + (now - self.since_s) / self.run_s)
            self.since_s = now
        self.version += 1

    def next_facts(self, *, reported: float) -> tuple[float, tuple[Event, ...]]:
        """What it will tell next if it goes on as it is, and when; `reported` was told before."""
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
        """A program in virtual time saves all that it did."""
        epochs = done * self.work.epochs
        return ProgressReported(*self.fence, epochs, epoch_s, saved=epochs)
