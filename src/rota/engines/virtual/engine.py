"""An engine in virtual time: workers that exist only as the moments at which they would report.

It keeps an engine's promises: orders are idempotent, a fence is honoured, an order that comes
again after the fact is answered with the fact again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import assert_never

from rota.core.commands import (
    AskToStop,
    ChangeMembership,
    Command,
    KillWorkers,
    ReportWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.events import (
    Event,
    MembershipChanged,
    ProgressReported,
    WorkersExited,
    WorkersFound,
    WorkersLost,
    WorkersStarted,
)
from rota.core.model import Job, JobId, NodeId, Running, Slot
from rota.engines.fake_agenda import Agenda
from rota.engines.fake_run import LOST, Delays, Fence, Gone, Run, Work

STOPPED_CODE = 143  # what a program ended by SIGTERM exits with
KILLED_CODE = 137  # ... and one ended by SIGKILL


class FakeEngine:
    """Runs workers in virtual time. `work_of` says what a job has to do; `delays` may be changed
    at any time and holds for the orders that come after."""

    def __init__(self, work_of: Callable[[JobId], Work], delays: Delays | None = None) -> None:
        self.delays = delays or Delays()
        self._work_of = work_of
        self._runs: dict[Fence, Run] = {}
        self._ended: dict[JobId, tuple[int, Gone]] = {}
        """The newest attempt of each job that is over, and how its workers ended."""
        self._done: dict[JobId, float] = {}
        """The part of each job's work that is safe: reported, or saved at a stop."""
        self._dead_nodes: set[NodeId] = set()
        self._agenda = Agenda()
        self._expect = self._agenda.expect

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
        return self._agenda.next_s()

    def due(self, now: float) -> list[Event]:
        facts: list[Event] = []
        while self.next_s() <= now:
            at_s, run, event = self._agenda.take()
            facts.append(event)
            if run is not None:
                self._happen(run, event, at_s=at_s)
        return facts

    # -- what those who test do to it, and ask it ----------------------------------------------

    def resume(self, job: Job, done: float, *, now: float) -> None:
        """Go on with a job of which that part is done; if it runs, all its workers are up."""
        self._done[job.id] = done
        if isinstance(job.phase, Running):
            workers = dict(zip(job.phase.numbers, job.allocation, strict=True))
            fence, work = (job.id, job.attempt), self._work_of(job.id)
            run = Run(fence, work, job.allocation, workers, done, since_s=now, has_started=True)
            self._runs[fence] = run
            self._expect_work(run)

    def lose_node(self, node_id: NodeId, now: float) -> None:
        """The workers on this node are gone and say nothing; the others of their jobs stand
        still. What was not yet reported is lost."""
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
        """These workers exit of themselves; the others of their job stand still."""
        run = self._runs.get(fence)
        codes = {n: code for n, code in codes.items() if run and n in run.alive}
        if run is not None and codes:
            self._break(run, codes, now=now)
            self._expect(None, now, WorkersExited(*fence, codes, is_retriable=is_retriable))

    def running(self) -> dict[Fence, dict[int, Slot]]:
        """The workers that really run now, or are about to, and their slots."""
        return {
            fence: {n: slot for n, slot in run.workers.items() if n not in run.gone}
            for fence, run in self._runs.items()
        }

    def found(self) -> list[WorkersFound]:
        """What an engine comes upon when its daemon starts anew."""
        runs = (run for run in self._runs.values() if run.has_started)
        return [WorkersFound(*run.fence, run.alive) for run in runs]

    # -- orders ---------------------------------------------------------------------------------

    def _start(self, order: StartWorkers, now: float) -> None:
        fence = (order.job_id, order.attempt)
        if fence in self._runs or self._ended.get(order.job_id, (0,))[0] >= order.attempt:
            self._tell_again(fence, range(len(order.allocation)), now=now)
            return
        run = Run(
            fence=fence,
            work=self._work_of(order.job_id),
            allocation=order.allocation,
            workers=dict(enumerate(order.allocation)),
            done=self._done.get(order.job_id, 0.0),
        )
        self._runs[fence] = run
        self._expect(run, now + self.delays.start_s, run.started())
        self._lose_those_on_dead_nodes(run, now)

    def _stop(self, order: StopWorkers, now: float) -> None:
        run = self._runs.get((order.job_id, order.attempt))
        if run is None:
            self._end_unknown(order, STOPPED_CODE)
            self._tell_again((order.job_id, order.attempt), order.workers, now=now)
            return
        strangers = [n for n in order.workers if n not in run.workers]
        if strangers:
            exits = dict.fromkeys(strangers, STOPPED_CODE)
            self._expect(None, now, WorkersExited(*run.fence, exits))
        if run.gone:
            self._tell_again(run.fence, run.gone, now=now)
        self._save_and_stop(run, now)

    def _kill(self, order: KillWorkers, now: float) -> None:
        fence = (order.job_id, order.attempt)
        run = self._runs.get(fence)
        if run is None:
            self._end_unknown(order, KILLED_CODE)
            self._tell_again(fence, order.workers, never_had=KILLED_CODE, now=now)
            return
        self._tell_again(fence, [n for n in order.workers if n in run.gone], now=now)
        self.end_workers(fence, dict.fromkeys(order.workers, KILLED_CODE), now=now)

    def _save_and_stop(self, run: Run, now: float) -> None:
        if run.stops_at_s < math.inf:
            return
        run.advance(now)
        run.since_s, run.stops_at_s = math.inf, now + self.delays.stop_s
        if run.is_whole and run.work.is_resumable:
            self._done[run.fence[0]] = run.done
            self._expect(run, now, run.progress(run.done))
        self._expect(run, run.stops_at_s, run.exits(STOPPED_CODE))

    def _switch(self, order: ChangeMembership, now: float) -> None:
        fence = (order.job_id, order.attempt)
        run = self._runs.get(fence)
        if run is None:
            self._end_unknown(order, LOST)
            known = self._ended[order.job_id][1]
            self._tell_again(fence, {*known, *order.workers}, never_had=0, now=now)
        elif run.stops_at_s < math.inf or not run.gone.keys().isdisjoint(order.workers):
            pass  # What keeps the order from being carried out was reported, or will be.
        elif order.generation <= run.generation:
            self._expect(None, now, MembershipChanged(*fence, order.generation))
        elif run.joining is None or run.joining.generation < order.generation:
            run.advance(now)
            run.joining = order
            run.workers.update(zip(order.workers, order.allocation, strict=True))
            self._expect_switch(run, now)
            self._expect_work(run)
            self._lose_those_on_dead_nodes(run, now)

    def _report(self, order: ReportWorkers, now: float) -> None:
        fence = (order.job_id, order.attempt)
        if fence not in self._runs:
            self._end_unknown(order, LOST)
        self._tell_again(fence, order.workers, never_had=0, now=now)

    def _tell_again(
        self, fence: Fence, workers: Iterable[int], *, now: float, never_had: int = STOPPED_CODE
    ) -> None:
        """Facts that were told before, and may have been lost on the way. A worker that the
        engine never had, of an attempt that is over, is gone with the code `never_had`."""
        run = self._runs.get(fence)
        if run is not None and run.has_started:
            self._expect(None, now, run.started())
        known = run.gone if run is not None else self._ended[fence[0]][1]
        gone = {n: known.get(n, never_had) for n in workers if n in known or run is None}
        exits = {n: code for n, code in gone.items() if code is not None}
        lost = frozenset(gone.keys() - exits.keys())
        if exits:
            self._expect(None, now, WorkersExited(*fence, exits))
        if lost:
            self._expect(None, now, WorkersLost(*fence, lost))

    def _end_unknown(
        self, order: StopWorkers | KillWorkers | ChangeMembership | ReportWorkers, code: int | None
    ) -> None:
        """What the engine never heard of is over from now on, and is not started later."""
        if self._ended.get(order.job_id, (0,))[0] < order.attempt:
            self._ended[order.job_id] = (order.attempt, dict.fromkeys(order.workers, code))

    # -- what becomes of a run ------------------------------------------------------------------

    def _happen(self, run: Run, event: Event, *, at_s: float) -> None:
        """A fact that was expected of a run came true; what it leads to."""
        match event:
            case WorkersStarted():
                run.has_started = True
                run.since_s = at_s
                self._expect_work(run)
            case ProgressReported(epoch_s=epoch_s):
                self._done[run.fence[0]] = event.epochs_done / run.work.epochs
                if epoch_s is not None:
                    self._expect_work(run)
            case MembershipChanged():
                self._take_over(run, at_s)
            case WorkersExited():
                run.gone.update(event.codes)
                self._end(run)
            case _:
                pass

    def _expect_switch(self, run: Run, now: float) -> None:
        if run.joining is not None and run.can_switch:
            changed = MembershipChanged(*run.fence, run.joining.generation)
            self._expect(run, now + self.delays.switch_s, changed)

    def _take_over(self, run: Run, now: float) -> None:
        """The next generation stands; those whom it leaves out are gone."""
        order = run.joining
        assert order is not None
        run.advance(now)
        run.allocation, run.generation, run.joining = order.allocation, order.generation, None
        run.workers = dict(zip(order.workers, order.allocation, strict=True))
        run.since_s = now
        self._expect_work(run)

    def _expect_work(self, run: Run) -> None:
        """The next report of a run that works, or its end, if it ever comes to one."""
        if math.isfinite(run.run_s) and math.isfinite(run.since_s):
            at_s, events = run.next_facts(reported=self._done.get(run.fence[0], 0.0))
            self._expect(run, at_s, *events)

    def _lose_those_on_dead_nodes(self, run: Run, now: float) -> None:
        lost = [n for n in run.alive if run.workers[n].node in self._dead_nodes]
        if lost:
            self._break(run, dict.fromkeys(lost, LOST), now=now)
            self._expect(None, now, WorkersLost(*run.fence, frozenset(lost)))

    def _break(self, run: Run, gone: Mapping[int, int | None], *, now: float) -> None:
        """Some workers are gone; the others stand still until they are stopped, or go on without
        them."""
        run.advance(now)
        run.gone.update(gone)
        run.since_s = math.inf
        if not run.alive:
            self._end(run)
        elif run.stops_at_s < math.inf:
            self._expect(run, max(now, run.stops_at_s), run.exits(STOPPED_CODE))
        else:
            self._expect_switch(run, now)

    def _end(self, run: Run) -> None:
        run.version += 1
        job_id, attempt = run.fence
        if self._ended.get(job_id, (0,))[0] < attempt:
            self._ended[job_id] = (attempt, run.gone)
        del self._runs[run.fence]
