"""Owns the kernel: applies events, writes the effects, and sends commands after their write.

Memory may be ahead of the disk only during a write. If a write fails, the controller discards the
kernel and rebuilds it from the store, as after a crash, as soon as the store accepts writes again.
Until then the controller accepts no events and sends no commands; running jobs continue. The same
holds if the disk of an engine fails during a recovery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog

from rota.core.estimation.speed_model import SpeedModel
from rota.core.kernel.kernel import Kernel
from rota.core.lifecycle.states import JobState
from rota.core.model.commands import Command
from rota.core.model.effects import Effects
from rota.core.model.events import (
    Bug,
    Event,
    JobCancelled,
    NodeLost,
    NodeSeen,
    TimerFired,
    WorkersExited,
    WorkersLost,
)
from rota.core.model.job import Job, JobId
from rota.core.model.node import Node, NodeId
from rota.core.scheduling.plan import Plan
from rota.core.scheduling.policy_api import Policy
from rota.core.scheduling.view import Rules, View
from rota.daemon.diagnosis.exit_inspection import ExitInspector, exits_of
from rota.daemon.runtime import node_watcher, recovery
from rota.daemon.runtime.command_delivery import (
    CommandDelivery,
    CommandListener,
    ProgramSource,
)
from rota.daemon.runtime.command_queue import PendingCommands, WakeupTimer
from rota.daemon.runtime.health import DaemonHealth
from rota.daemon.runtime.lost_jobs import NO_RECORDS, StartRecords
from rota.daemon.runtime.scheduling_loop import SchedulingLoop
from rota.daemon.runtime.usage import UsageAccounting
from rota.engines.interface import Engine
from rota.errors import FenceRejectedError, StoreError, StoreErrorKind
from rota.store.interface import Batch, Store
from rota.store.records import Row, SampleRecord, Submission
from rota.tasks import Tasks
from rota.thread_pools import DEVICES, STORE

log = structlog.get_logger()

EMPTY_BATCH = Batch()
ALREADY_WRITTEN: Future[None] = Future()
ALREADY_WRITTEN.set_result(None)


@dataclass(frozen=True, slots=True)
class ControllerDependencies:
    store: Store
    engine: Engine
    clock: Callable[[], float]
    rules: Rules
    start_records: StartRecords = NO_RECORDS


class Controller:
    def __init__(self, parts: ControllerDependencies, policy: Policy) -> None:
        self._parts = parts
        self.policy = policy
        self.kernel = Kernel(parts.rules)
        self.usage = UsageAccounting()
        self.unreadable_jobs: Mapping[JobId, str] = {}
        """Jobs in the store that this daemon cannot read and does not run, with the reason."""
        self._health = DaemonHealth(parts.store, recover=self._recover)
        self.broken = self._health.broken
        self._command_queue: asyncio.Queue[PendingCommands] = asyncio.Queue()
        self.recovery_warnings: tuple[str, ...] = ()
        """What the store had lost at the start."""
        self._epoch = 0
        """Grows with each new kernel. Commands of an older kernel are dropped."""
        self._scheduling_loop = SchedulingLoop(self, interval_s=parts.rules.round_interval_s)
        self.tasks = Tasks(self._health.fail_permanently)
        """Background tasks, which run until the controller closes."""
        self._delivery = CommandDelivery(self, parts.engine, tasks=self.tasks)
        self._inspector = ExitInspector(self, parts.engine, tasks=self.tasks)
        self._wakeup_timer = WakeupTimer(parts.clock, partial(self.tasks.call_critical, self._wake))
        self._changed = asyncio.Event()
        self._pending_nodes: dict[NodeId, Node] = {}
        self._refused: dict[JobId, str] = {}
        """The jobs of batches that the store refused to write, with the reason."""
        self._reported: list[Event] = []
        """Events of the engine that are applied together, before any other event."""
        self._is_recovering = False
        self._loop = asyncio.get_running_loop()

    # -- start and stop ---------------------------------------------------------------------------

    async def start(self, programs: ProgramSource, *, listeners: Sequence[CommandListener]) -> None:
        """`programs` returns the program of a job that starts. The `listeners` get each command
        before the engine does. Both need the controller, so they are arguments of the start."""
        self._delivery.open(programs, listeners=listeners)
        await self._parts.engine.start(self._report)
        await self._recover()
        self.tasks.spawn_critical(self._deliver())
        self.tasks.spawn_critical(self._scheduling_loop.run())
        self.tasks.spawn_critical(node_watcher.watch(self._parts.engine, self._apply_seen_nodes))

    async def close(self) -> None:
        """Stop scheduling. Running jobs continue under their supervisors."""
        await self._health.close()
        await self.tasks.close()
        self._wakeup_timer.cancel()
        await self._parts.engine.close()

    async def _recover(self) -> None:
        """Rebuild the kernel from the store and from the inventory of the engine."""
        parts = self._parts
        written = await STORE.run(recovery.read_state, parts.store, parts.start_records)
        seen = await DEVICES.run(parts.engine.inventory)
        adopted = {each.job.id for each in written.lost.jobs}
        unreadable = written.saved.unreadable.items()
        self.unreadable_jobs = {key: why for key, why in unreadable if key not in adopted}
        for job_id, reason in self.unreadable_jobs.items():
            log.error("stored job unreadable, ignored", job=job_id, error=reason)
        self._health.mark_healthy()
        self.kernel = Kernel(parts.rules)
        self.usage = UsageAccounting(written.usage, written.jobs)
        self._epoch += 1
        self.recovery_warnings += written.lost.warnings
        self._is_recovering = True
        try:
            restored = written.restore(self.kernel, seen=seen, now=parts.clock())
            self._record(restored, Batch(submissions=written.lost.submissions))
            for node_id in {node.id for node in written.saved.nodes} - {node.id for node in seen}:
                self.apply_event(NodeLost(node_id))
            self._apply_seen_nodes(seen)
            self._hold_refused()
        finally:
            self._is_recovering = False
        self._scheduling_loop.wake()
        await parts.engine.adopt()

    def _hold_refused(self) -> None:
        """Hold the jobs that the store refused to write before the recovery: what happened to them
        would happen again, and each time the daemon would recover once more."""
        refused, self._refused = self._refused, {}
        for job_id, reason in refused.items():
            self.hold_after_error(job_id, reason)

    def hold_after_error(self, job_id: JobId, reason: str) -> None:
        """Hold a job because of an error that no code expects; stop its workers first."""
        if job := self.job(job_id):
            self.apply_event(Bug(job_id, job.attempt, reason))

    # -- events ----------------------------------------------------------------------------------

    def apply_event(self, event: Event, *, actor: str = "") -> Future[None]:
        """Apply an event. The future is done when the effects are on the disk."""
        self.require_available()
        self._apply_reported()
        return self._apply_all([event], actor=actor)

    def apply_events(
        self, events: Iterable[Event], submissions: Sequence[Submission], *, actor: str
    ) -> Future[None]:
        """Apply events whose effects are written together or not at all."""
        self.require_available()
        self._apply_reported()
        effects = self.kernel.apply_all(events, self._parts.clock())
        return self._record(effects, Batch(submissions=tuple(submissions), actor=actor))

    def put(self, *rows: Row, samples: tuple[SampleRecord, ...] = ()) -> Future[None]:
        """Write rows that do not concern the kernel."""
        self.require_available()
        return self._write(Batch(rows=rows, samples=samples), [])

    async def durable(self, written: Future[None]) -> None:
        """Wait until the write is on the disk. Raises if the write fails."""
        self.require_available()
        try:
            await asyncio.wrap_future(written)
        except StoreError as error:
            self._health.fail(error)
            raise
        except FenceRejectedError as error:
            # The caller sees the error on the jobs themselves: these jobs are cancelled.
            log.warning("jobs rejected by the store", error=str(error))

    @property
    def trouble(self) -> str:
        """Why the controller cannot write or act; empty if it can."""
        return self._health.trouble

    def require_available(self) -> None:
        self._health.require()

    def changed(self) -> Coroutine[Any, Any, object]:
        """Wait for the next write after this call, also if the coroutine starts later."""
        return self._changed.wait()

    # -- jobs and nodes (`JobReader`) -----------------------------------------------------------

    def job(self, job_id: JobId) -> Job | None:
        """The job, if it has not ended."""
        return self.kernel.job(job_id)

    @property
    def jobs(self) -> Mapping[JobId, Job]:
        return self.kernel.jobs

    def n_queued(self, user: str) -> int:
        """The number of queued and held jobs of a user."""
        return self.kernel.n_queued(user)

    @property
    def outcomes(self) -> Mapping[JobId, JobState]:
        return self.kernel.outcomes

    @property
    def nodes(self) -> Mapping[NodeId, Node]:
        return self.kernel.nodes

    @property
    def dependencies(self) -> Collection[JobId]:
        """The jobs, ended or not, that jobs which have not ended depend on."""
        return self.kernel.dependencies

    def forget_outcomes(self, job_ids: Iterable[JobId]) -> None:
        """Forget ended jobs that the store has deleted. No job may depend on them."""
        self.kernel.forget_outcomes(job_ids)

    @property
    def speeds(self) -> Mapping[str, SpeedModel]:
        """The speed model of each category."""
        return self.kernel.speeds

    @property
    def rules(self) -> Rules:
        return self._parts.rules

    # -- events of the engine -------------------------------------------------------------------

    def _report(self, event: Event) -> None:
        """Take an event of the engine. During trouble events are dropped: the recovery asks the
        engine for its whole state."""
        if self.trouble:
            return
        if isinstance(event, NodeSeen):
            if not self._pending_nodes:
                self._loop.call_later(
                    node_watcher.GATHER_S, self.tasks.call_critical, self._apply_seen_nodes
                )
            self._pending_nodes[event.node.id] = event.node
            return
        if isinstance(event, NodeLost):
            self._pending_nodes.pop(event.node_id, None)
        elif isinstance(event, WorkersLost):
            self._apply_seen_nodes()  # No plan may use a node that was closed before.
        if isinstance(event, WorkersExited | WorkersLost):
            self._inspector.inspect(event)
        else:
            self.apply_soon(event)

    def apply_soon(self, event: Event) -> None:
        """Apply an event of the engine together with those that arrive at the same time: a worker
        that starts and ends at once, or many workers, then cost one write."""
        if not self._reported:
            self._loop.call_soon(self.tasks.call_critical, self._apply_reported)
        self._reported.append(event)

    def _apply_reported(self) -> None:
        events, self._reported = self._reported, []
        if events and not self.trouble:
            self._apply_all(events, actor="")

    def _apply_all(self, events: Sequence[Event], *, actor: str) -> Future[None]:
        now = self._parts.clock()
        exited = (event for event in events if isinstance(event, WorkersExited))
        exits = tuple(each for event in exited for each in exits_of(event, now))
        return self._record(self.kernel.apply_all(events, now), Batch(exits=exits, actor=actor))

    def _apply_seen_nodes(self, seen: Iterable[Node] = ()) -> None:
        seen, self._pending_nodes = [*self._pending_nodes.values(), *seen], {}
        if seen and not self.trouble:
            now_seen = [node_watcher.with_known_drain(each, self.kernel.nodes) for each in seen]
            self.apply_events(map(NodeSeen, now_seen), (), actor="")

    # -- effects --------------------------------------------------------------------------------

    def _record(self, effects: Effects, more: Batch = EMPTY_BATCH) -> Future[None]:
        """Write effects together with `more`, then queue their commands. A short round that follows
        from them is written next: both then share a commit."""
        planned = self._short_round()
        written = self._write_effects(effects, more)
        if planned is not None:
            self._write_effects(planned)
        self._wakeup_timer.set(self.kernel.next_timer_s())
        self._scheduling_loop.wake()
        return written

    def _short_round(self) -> Effects | None:
        """The effects of a short round. A bug in a round must not keep an event from the disk.

        While the daemon recovers, rounds wait: a plan would use nodes that are gone, and start jobs
        that are about to be held.
        """
        if self._is_recovering:
            return None
        try:
            plan = self._scheduling_loop.short_round()
            return None if plan is None else self._adopt(plan)
        except Exception as error:
            log.exception("scheduling round failed")
            self._health.fail_permanently(error)
            return None

    def _write_effects(self, effects: Effects, more: Batch = EMPTY_BATCH) -> Future[None]:
        for error in effects.errors:
            log.error("job held after an internal error", exc_info=error)
        if not (effects.jobs or effects.nodes or effects.transitions or more.exits):
            if effects.commands:
                self._command_queue.put_nowait(
                    PendingCommands(self._epoch, ALREADY_WRITTEN, effects.commands)
                )
            return ALREADY_WRITTEN
        usage = self.usage.count(effects.jobs.values(), now=effects.now)
        return self._write(replace(more, effects=effects, rows=usage), effects.commands)

    def _write(self, batch: Batch, commands: list[Command]) -> Future[None]:
        try:
            written = self._parts.store.write(batch)
        except StoreError as error:
            written = Future[None]()
            written.set_exception(error)
        submitted = tuple(each.job_id for each in batch.submissions)
        self._command_queue.put_nowait(
            PendingCommands(self._epoch, written, commands, submitted, tuple(batch.effects.jobs))
        )
        return written

    async def _deliver(self) -> None:
        """Pass commands to the delivery in order, each after the write that it depends on."""
        while True:
            due = await self._command_queue.get()
            try:
                rejected = await due.wait()
            except StoreError as error:
                if due.epoch == self._epoch:
                    if error.kind is StoreErrorKind.REFUSED:
                        self._refused |= dict.fromkeys(due.changed, str(error))
                    self._health.fail(error)
                continue
            if rejected and due.epoch == self._epoch and not self.trouble:
                self._cancel_rejected(rejected)
            self._announce()
            for command in due.sendable(rejected):
                self._delivery.put(command, due.epoch)

    def accepts(self, epoch: int) -> bool:
        """Whether commands of this epoch may be executed: the kernel that issued them is current,
        and the store works."""
        return epoch == self._epoch and not self.trouble

    def fail_store(self, error: StoreError) -> None:
        """The store failed while a command was executed."""
        self._health.fail(error)

    def _cancel_rejected(self, rejected: Mapping[JobId, str]) -> None:
        """Cancel jobs that the store rejected. Their programs or fences were never written, so
        they must not start."""
        gone = (JobCancelled(each, reason=why) for each, why in rejected.items())
        self.apply_events(gone, (), actor="")

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # -- scheduling and timers --------------------------------------------------------------------

    def view(self) -> View:
        return self.kernel.view(self._parts.clock())

    def peek(self) -> View:
        """A view for a question that changes nothing."""
        return self.kernel.peek(self._parts.clock())

    def commit(self, plan: Plan) -> None:
        self._record(self._adopt(plan))

    def _adopt(self, plan: Plan) -> Effects:
        for violation in plan.violations:
            log.error("plan rejected", violation=violation)
        return self.kernel.commit(plan, self._parts.clock())

    def use_policy(self, policy: Policy) -> None:
        """Use a policy from the next round on, and start that round now."""
        self.policy = policy
        self.kernel.want_round()
        self._scheduling_loop.wake()

    @property
    def scheduling_loop(self) -> SchedulingLoop:
        return self._scheduling_loop

    def _wake(self) -> None:
        if not self.trouble:
            self.apply_event(TimerFired())
