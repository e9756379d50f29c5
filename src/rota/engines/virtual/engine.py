"""The virtual engine: it computes the events of workers and starts no process.

It obeys the rules of every engine: commands are idempotent, an attempt that has ended never starts
again, and a repeated command makes the engine report the same events again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import assert_never

from rota.core.model.allocation import Slot
from rota.core.model.commands import (
    AskToStop,
    ChangeMembership,
    Command,
    KillWorkers,
    ReportWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.model.events import (
    Event,
    MembershipChanged,
    ProgressReported,
    WorkersExited,
    WorkersFound,
    WorkersLost,
    WorkersStarted,
)
from rota.core.model.job import Job, JobId, Running
from rota.core.model.node import NodeId
from rota.engines.virtual.event_queue import VirtualEventQueue
from rota.engines.virtual.run import LOST, Delays, Fence, VirtualRun, VirtualWork, WorkerExitCodes

STOPPED_CODE = 143
"""Exit code after SIGTERM: 128 + 15."""
KILLED_CODE = 137
"""Exit code after SIGKILL: 128 + 9."""


class VirtualEngine:
    """An engine in virtual time. `work_of` returns the work of a job. `delays` may change at any
    time and applies to later commands."""

    def __init__(
        self, work_of: Callable[[JobId], VirtualWork], delays: Delays | None = None
    ) -> None:
        self.delays = delays or Delays()
        self._work_of = work_of
        self._runs: dict[Fence, VirtualRun] = {}
        self._ended: dict[JobId, tuple[int, WorkerExitCodes]] = {}
        """The newest ended attempt of each job, and the exit codes of its workers."""
        self._done: dict[JobId, float] = {}
        """Saved progress of each job (0 to 1): reported, or saved at a stop."""
        self._dead_nodes: set[NodeId] = set()
        self._event_queue = VirtualEventQueue()
        self._schedule = self._event_queue.add

    def apply(self, command: Command, now: float) -> None:
        match command:
            case StartWorkers():
                self._start(command, now)
            case StopWorkers():
                self._stop(command, now)
            case ChangeMembership():
                self._switch(command, now)
            case ReportWorkers():
                self._report(command, now)
            case AskToStop(job_id=job_id, attempt=attempt):
                if (run := self._runs.get((job_id, attempt))) and run.is_whole:
                    self._save_and_stop(run, now)
            case KillWorkers():
                self._kill(command, now)
            case _:
                assert_never(command)

    def next_s(self) -> float:
        """Time of the next event; infinite if there is none."""
        return self._event_queue.next_s()

    def due(self, now: float) -> list[Event]:
        """Remove and return all events up to `now`."""
        events: list[Event] = []
        while self.next_s() <= now:
            at_s, run, event = self._event_queue.take()
            events.append(event)
            if run is not None:
                self._on_event(run, event, at_s=at_s)
        return events

    # -- faults and initial state, for tests, simulations and forecasts -------------------------

    def resume(self, job: Job, done: float, *, now: float) -> None:
        """Set the progress of a job. If the job runs, all its workers have started."""
        self._done[job.id] = done
        if isinstance(job.phase, Running):
            workers = dict(zip(job.phase.numbers, job.allocation, strict=True))
            fence, work = (job.id, job.attempt), self._work_of(job.id)
            run = VirtualRun(
                fence, work, job.allocation, workers, done, since_s=now, has_started=True
            )
            self._runs[fence] = run
            self._schedule_work(run)

    def lose_node(self, node_id: NodeId, now: float) -> None:
        """Lose the workers on this node without an event. The other workers of their jobs make no
        more progress. Unreported progress is lost."""
        self._dead_nodes.add(node_id)
        for run in list(self._runs.values()):
            lost = [n for n in run.alive if run.workers[n].node == node_id]
            if lost:
                self._break(run, dict.fromkeys(lost, LOST), now=now)

    def bring_back_node(self, node_id: NodeId) -> None:
        self._dead_nodes.discard(node_id)

    def end_workers(
        self, fence: Fence, codes: Mapping[int, int], *, now: float, is_retriable: bool = False
    ) -> None:
        """Let workers exit with these codes. The other workers of the job make no more progress."""
        run = self._runs.get(fence)
        codes = {n: code for n, code in codes.items() if run and n in run.alive}
        if run is not None and codes:
            self._break(run, codes, now=now)
            self._schedule(None, now, WorkersExited(*fence, codes, is_retriable=is_retriable))

    def running(self) -> dict[Fence, dict[int, Slot]]:
        """The workers that run or are starting, with their slots."""
        return {
            fence: {n: slot for n, slot in run.workers.items() if n not in run.gone}
            for fence, run in self._runs.items()
        }

    def found(self) -> list[WorkersFound]:
        """The events that an engine reports after a restart of the daemon."""
        runs = (run for run in self._runs.values() if run.has_started)
        return [WorkersFound(*run.fence, run.alive) for run in runs]

    # -- commands -------------------------------------------------------------------------------

    def _start(self, command: StartWorkers, now: float) -> None:
        fence = (command.job_id, command.attempt)
        if fence in self._runs or self._ended.get(command.job_id, (0,))[0] >= command.attempt:
            self._report_again(fence, range(len(command.allocation)), now=now)
            return
        run = VirtualRun(
            fence=fence,
            work=self._work_of(command.job_id),
            allocation=command.allocation,
            workers=dict(enumerate(command.allocation)),
            done=self._done.get(command.job_id, 0.0),
        )
        self._runs[fence] = run
        self._schedule(run, now + self.delays.start_s, run.started())
        self._lose_workers_on_dead_nodes(run, now)

    def _stop(self, command: StopWorkers, now: float) -> None:
        run = self._runs.get((command.job_id, command.attempt))
        if run is None:
            self._end_unknown(command, STOPPED_CODE)
            self._report_again((command.job_id, command.attempt), command.workers, now=now)
            return
        unknown = [n for n in command.workers if n not in run.workers]
        if unknown:
            exits = dict.fromkeys(unknown, STOPPED_CODE)
            self._schedule(None, now, WorkersExited(*run.fence, exits))
        if run.gone:
            self._report_again(run.fence, run.gone, now=now)
        self._save_and_stop(run, now)

    def _kill(self, command: KillWorkers, now: float) -> None:
        fence = (command.job_id, command.attempt)
        run = self._runs.get(fence)
        if run is None:
            self._end_unknown(command, KILLED_CODE)
            self._report_again(fence, command.workers, default_code=KILLED_CODE, now=now)
            return
        self._report_again(fence, [n for n in command.workers if n in run.gone], now=now)
        self.end_workers(fence, dict.fromkeys(command.workers, KILLED_CODE), now=now)

    def _save_and_stop(self, run: VirtualRun, now: float) -> None:
        if run.stops_at_s < math.inf:
            return
        run.advance(now)
        run.since_s, run.stops_at_s = math.inf, now + self.delays.stop_s
        if run.is_whole and run.work.is_resumable:
            self._done[run.fence[0]] = run.done
            self._schedule(run, now, run.progress(run.done))
        self._schedule(run, run.stops_at_s, run.exits(STOPPED_CODE))

    def _switch(self, command: ChangeMembership, now: float) -> None:
        fence = (command.job_id, command.attempt)
        run = self._runs.get(fence)
        if run is None:
            self._end_unknown(command, LOST)
            known = self._ended[command.job_id][1]
            self._report_again(fence, {*known, *command.workers}, default_code=0, now=now)
        elif run.stops_at_s < math.inf or not run.gone.keys().isdisjoint(command.workers):
            pass  # The engine reports the stop or the exits that prevent this change.
        elif command.generation <= run.generation:
            self._schedule(None, now, MembershipChanged(*fence, command.generation))
        elif run.joining is None or run.joining.generation < command.generation:
            run.advance(now)
            run.joining = command
            run.workers.update(zip(command.workers, command.allocation, strict=True))
            self._schedule_switch(run, now)
            self._schedule_work(run)
            self._lose_workers_on_dead_nodes(run, now)

    def _report(self, command: ReportWorkers, now: float) -> None:
        fence = (command.job_id, command.attempt)
        if fence not in self._runs:
            self._end_unknown(command, LOST)
        self._report_again(fence, command.workers, default_code=0, now=now)

    def _report_again(
        self, fence: Fence, workers: Iterable[int], *, now: float, default_code: int = STOPPED_CODE
    ) -> None:
        """Report events again, because the first report may have been lost. A worker that never
        existed in an ended attempt is reported with the exit code `default_code`."""
        run = self._runs.get(fence)
        if run is not None and run.has_started:
            self._schedule(None, now, run.started())
        known = run.gone if run is not None else self._ended[fence[0]][1]
        gone = {n: known.get(n, default_code) for n in workers if n in known or run is None}
        exits = {n: code for n, code in gone.items() if code is not None}
        lost = frozenset(gone.keys() - exits.keys())
        if exits:
            self._schedule(None, now, WorkersExited(*fence, exits))
        if lost:
            self._schedule(None, now, WorkersLost(*fence, lost))

    def _end_unknown(
        self,
        command: StopWorkers | KillWorkers | ChangeMembership | ReportWorkers,
        code: int | None,
    ) -> None:
        """Mark an unknown attempt as ended, so that it never starts later."""
        if self._ended.get(command.job_id, (0,))[0] < command.attempt:
            self._ended[command.job_id] = (command.attempt, dict.fromkeys(command.workers, code))

    # -- the life of a run ----------------------------------------------------------------------

    def _on_event(self, run: VirtualRun, event: Event, *, at_s: float) -> None:
        """Apply an event of a run to the run and schedule the events that follow."""
        match event:
            case WorkersStarted():
                run.has_started = True
                run.since_s = at_s
                self._schedule_work(run)
            case ProgressReported(epoch_s=epoch_s):
                self._done[run.fence[0]] = event.epochs_done / run.work.epochs
                if epoch_s is not None:
                    self._schedule_work(run)
            case MembershipChanged():
                self._complete_switch(run, at_s)
            case WorkersExited():
                run.gone.update(event.codes)
                self._end(run)
            case _:
                pass

    def _schedule_switch(self, run: VirtualRun, now: float) -> None:
        if run.joining is not None and run.can_switch:
            changed = MembershipChanged(*run.fence, run.joining.generation)
            self._schedule(run, now + self.delays.switch_s, changed)

    def _complete_switch(self, run: VirtualRun, now: float) -> None:
        """Make the next generation the current one. Workers outside it are gone."""
        command = run.joining
        assert command is not None
        run.advance(now)
        run.allocation, run.generation, run.joining = command.allocation, command.generation, None
        run.workers = dict(zip(command.workers, command.allocation, strict=True))
        run.since_s = now
        self._schedule_work(run)

    def _schedule_work(self, run: VirtualRun) -> None:
        """Schedule the next progress report or the end of a run that makes progress."""
        if math.isfinite(run.run_s) and math.isfinite(run.since_s):
            at_s, events = run.next_events(reported=self._done.get(run.fence[0], 0.0))
            self._schedule(run, at_s, *events)

    def _lose_workers_on_dead_nodes(self, run: VirtualRun, now: float) -> None:
        lost = [n for n in run.alive if run.workers[n].node in self._dead_nodes]
        if lost:
            self._break(run, dict.fromkeys(lost, LOST), now=now)
            self._schedule(None, now, WorkersLost(*run.fence, frozenset(lost)))

    def _break(self, run: VirtualRun, gone: Mapping[int, int | None], *, now: float) -> None:
        """Mark workers as gone. The others make no progress until they stop or until a new
        generation continues without the lost workers."""
        run.advance(now)
        run.gone.update(gone)
        run.since_s = math.inf
        if not run.alive:
            self._end(run)
        elif run.stops_at_s < math.inf:
            self._schedule(run, max(now, run.stops_at_s), run.exits(STOPPED_CODE))
        else:
            self._schedule_switch(run, now)

    def _end(self, run: VirtualRun) -> None:
        run.version += 1
        job_id, attempt = run.fence
        if self._ended.get(job_id, (0,))[0] < attempt:
            self._ended[job_id] = (attempt, run.gone)
        del self._runs[run.fence]
