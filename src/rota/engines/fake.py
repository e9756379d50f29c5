"""An engine in virtual time: workers that exist only as the moments at which they would report.

It keeps an engine's promises: orders are idempotent, a fence is honoured, an order that comes
again after the fact is answered with the fact again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

from rota.core.commands import ChangeMembership, Command, StartWorkers, StopWorkers
from rota.core.events import (
    Event,
    MembershipChanged,
    ProgressReported,
    WorkersExited,
    WorkersStarted,
)
from rota.core.model import Allocation, JobId, NodeId, newcomers

STOPPED_CODE = 143
"""What a program ended by SIGTERM exits with."""
REPORTS_MAX = 50
"""Progress reports of one run at the most, however many epochs it has."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a job has to do, and how long all of it would take on given slots."""

    epochs: float
    run_s: Callable[[Allocation], float]


@dataclass(frozen=True, slots=True)
class Delays:
    """How long the engine takes: from an order to start until all workers run, from an order to
    stop until all are gone, and to switch the members of a job that goes on."""

    start_s: float = 0.0
    stop_s: float = 0.0
    switch_s: float = 0.0


@dataclass(slots=True)
class _Run:
    """One attempt. Of its work `done` (a part of 1) was done by `since_s`; it stands still while
    that is infinite."""

    job_id: JobId
    attempt: int
    work: Work
    allocation: Allocation
    members: Allocation
    done: float
    since_s: float = math.inf
    generation: int = 0
    joining: Allocation = ()
    is_stopping: bool = False
    lost: set[int] = field(default_factory=set[int])
    version: int = 0
    """Grows when the future of the run changes: what was expected before does not happen."""

    def advance(self, now: float) -> None:
        if now > self.since_s:
            self.done = min(1.0, self.done + (now - self.since_s) / self.run_s)
            self.since_s = now
        self.version += 1

    @property
    def run_s(self) -> float:
        return self.work.run_s(self.allocation)

    def exits(self, code: int) -> WorkersExited:
        alive = (worker for worker in range(len(self.members)) if worker not in self.lost)
        return WorkersExited(self.job_id, self.attempt, dict.fromkeys(alive, code))

    def started(self) -> WorkersStarted:
        return WorkersStarted(self.job_id, self.attempt, frozenset(range(len(self.members))))

    def progress(self, done: float, epoch_s: float | None = None) -> ProgressReported:
        epochs_done = done * self.work.epochs
        return ProgressReported(self.job_id, self.attempt, epochs_done, epoch_s)


class FakeEngine:
    """Runs workers in virtual time. `work_of` says what a job has to do."""

    def __init__(self, work_of: Callable[[JobId], Work], delays: Delays | None = None) -> None:
        self._work_of = work_of
        self._delays = delays or Delays()
        self._runs: dict[JobId, _Run] = {}
        self._done: dict[JobId, float] = {}
        """The part of each job's work that is safe: reported, or saved at a stop."""
        self._ended: dict[JobId, WorkersExited] = {}
        self._heap: list[tuple[float, int, _Run | None, int, Event]] = []
        self._n_expected = 0

    def apply(self, command: Command, now: float) -> None:
        match command:
            case StartWorkers():
                self._start(command, now)
            case StopWorkers():
                self._stop(command, now)
            case ChangeMembership():
                self._switch(command, now)
            case _:
                assert_never(command)

    def next_s(self) -> float:
        while self._heap:
            at_s, _, run, version, _ = self._heap[0]
            if run is None or run.version == version:
                return at_s
            heapq.heappop(self._heap)
        return math.inf

    def due(self, now: float) -> list[Event]:
        facts: list[Event] = []
        while self.next_s() <= now:
            at_s, _, run, _, event = heapq.heappop(self._heap)
            facts.append(event)
            if run is not None:
                self._happen(run, event, at_s)
        return facts

    def lose_node(self, node_id: NodeId) -> None:
        """The workers on this node are gone and say nothing; the others of their jobs stand
        still. What was not yet reported is lost."""
        for run in list(self._runs.values()):
            lost = {i for i, slot in enumerate(run.members) if slot.node == node_id}
            if lost:
                run.lost |= lost
                run.since_s = math.inf
                run.version += 1
                if len(run.lost) == len(run.members):
                    self._end(run, run.exits(STOPPED_CODE))
                elif run.is_stopping:
                    self._expect(run, 0.0, run.exits(STOPPED_CODE))

    def running(self) -> dict[JobId, Allocation]:
        """The slots in which workers really run now, for those who check."""
        return {
            run.job_id: tuple(slot for i, slot in enumerate(run.members) if i not in run.lost)
            for run in self._runs.values()
        }

    def _start(self, order: StartWorkers, now: float) -> None:
        run, ended = self._runs.get(order.job_id), self._ended.get(order.job_id)
        if run is not None and run.attempt >= order.attempt:
            if run.since_s < math.inf:
                self._expect(None, now, run.started())
        elif ended is not None and ended.attempt >= order.attempt:
            self._expect(None, now, ended)
        else:
            run = _Run(
                job_id=order.job_id,
                attempt=order.attempt,
                work=self._work_of(order.job_id),
                allocation=order.allocation,
                members=order.allocation,
                done=self._done.get(order.job_id, 0.0),
            )
            self._runs[order.job_id] = run
            self._expect(run, now + self._delays.start_s, run.started())

    def _stop(self, order: StopWorkers, now: float) -> None:
        run, ended = self._runs.get(order.job_id), self._ended.get(order.job_id)
        if run is not None and run.attempt == order.attempt:
            if not run.is_stopping:
                self._save_and_stop(run, now)
        elif ended is not None and ended.attempt == order.attempt:
            self._expect(None, now, ended)
        elif run is None or run.attempt < order.attempt:
            codes = dict.fromkeys(range(order.workers), STOPPED_CODE)
            self._ended[order.job_id] = WorkersExited(order.job_id, order.attempt, codes)
            self._expect(None, now, self._ended[order.job_id])

    def _save_and_stop(self, run: _Run, now: float) -> None:
        run.advance(now)
        run.is_stopping, run.since_s = True, math.inf
        if not run.lost:
            self._done[run.job_id] = run.done
            self._expect(run, now, run.progress(run.done))
        self._expect(run, now + self._delays.stop_s, run.exits(STOPPED_CODE))

    def _switch(self, order: ChangeMembership, now: float) -> None:
        run = self._runs.get(order.job_id)
        if run is None or run.attempt != order.attempt or run.is_stopping or run.lost:
            return
        changed = MembershipChanged(order.job_id, order.attempt, order.generation)
        if order.generation <= run.generation:
            self._expect(None, now, changed)
            return
        run.advance(now)
        run.joining = order.allocation
        run.members = run.allocation + newcomers(run.allocation, order.allocation)
        self._expect(run, now + self._delays.switch_s, changed)
        self._expect_work(run)

    def _happen(self, run: _Run, event: Event, now: float) -> None:
        """A fact that was expected of a run came true; what it leads to."""
        match event:
            case WorkersStarted():
                run.since_s = now
                self._expect_work(run)
            case ProgressReported(epoch_s=float()):
                self._done[run.job_id] = event.epochs_done / run.work.epochs
                self._expect_work(run)
            case MembershipChanged():
                run.advance(now)
                run.allocation = run.members = run.joining
                run.generation = event.generation
                self._expect_work(run)
            case WorkersExited():
                self._end(run, event)
            case _:
                pass

    def _expect_work(self, run: _Run) -> None:
        """The next report of a run that works, or its end."""
        n_reports = min(run.work.epochs, REPORTS_MAX)
        reported = self._done.get(run.job_id, 0.0)
        next_done = (math.floor(reported * n_reports + 1e-6) + 1) / n_reports
        if next_done < 1 - 1e-9:
            at_s = run.since_s + max(0.0, next_done - run.done) * run.run_s
            self._expect(run, at_s, run.progress(next_done, run.run_s / run.work.epochs))
        else:
            end_s = run.since_s + (1 - run.done) * run.run_s
            self._expect(run, end_s, run.progress(1.0), run.exits(0))

    def _end(self, run: _Run, event: WorkersExited) -> None:
        run.version += 1
        self._ended[run.job_id] = event
        del self._runs[run.job_id]

    def _expect(self, run: _Run | None, at_s: float, *events: Event) -> None:
        """Facts to come; with a run, unless its future changes first."""
        for event in events:
            self._n_expected += 1
            version = run.version if run else 0
            heapq.heappush(self._heap, (at_s, self._n_expected, run, version, event))
