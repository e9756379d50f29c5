"""The one owner of a kernel: facts go in, rows are written, and only then do commands go out.

Memory may be ahead of the disk only while a write is under way. When one fails, the kernel is
thrown away and made anew from the store, exactly as after a crash, as soon as that can be written
again. Until then nothing is accepted and no command leaves; whatever runs goes on. The same goes
for an engine whose own disk fails under a command: it is given again until it arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial

import structlog

from rota.core.commands import AskToStop, ChangeMembership, Command, StartWorkers
from rota.core.effects import Effects
from rota.core.events import (
    Event,
    JobCancelled,
    NodeLost,
    NodeSeen,
    TimerFired,
    WorkersExited,
    WorkersLost,
)
from rota.core.kernel import Kernel
from rota.core.model import JobId, Node, NodeId
from rota.core.plan import Plan
from rota.core.policy import Policy
from rota.core.view import Rules, View
from rota.daemon import nodes, recovery
from rota.daemon.accounts import Accounts
from rota.daemon.findings import examined, exits_of, needs_a_look
from rota.daemon.health import Health
from rota.daemon.outbox import Alarm, Due
from rota.daemon.rounds import Rounds
from rota.engines.base import Engine, Program
from rota.errors import RotaError, StoreError, UnfencedError
from rota.store.base import Batch, Store
from rota.store.records import Row, Sample, Submission
from rota.tasks import Bugs, Tasks

log = structlog.get_logger()

CANNOT_RUN = 126

NOTHING = Batch()
DONE: Future[None] = Future()
DONE.set_result(None)

Programs = Callable[[JobId], Awaitable[Program]]
Listener = Callable[[Command], None]


@dataclass(frozen=True, slots=True)
class Parts:
    """What a shell is made of."""

    store: Store
    engine: Engine
    clock: Callable[[], float]
    rules: Rules


class Shell:
    def __init__(self, parts: Parts, policy: Policy) -> None:
        self._parts = parts
        self.policy = policy
        self.kernel = Kernel(parts.rules)
        self.accounts = Accounts()
        self._health = Health(parts.store, begin_anew=self._recover)
        self.broken = self._health.broken
        self._outbox: asyncio.Queue[Due] = asyncio.Queue()
        self._epoch = 0
        """Grows when the kernel is made anew: what an older one wanted does not count."""
        self._programs: Programs = _nothing_to_run
        self._listener: Listener = _nobody_listens
        self._rounds = Rounds(self, interval_s=parts.rules.round_interval_s)
        self.tasks = Tasks(self._health.break_down)
        """What goes on until the shell closes."""
        self._bugs = Bugs("an exit is told without a look at the log")
        self._alarm = Alarm(parts.clock, partial(self.tasks.rely_on_soon, self._wake))
        self._changed = asyncio.Event()
        self._sightings: dict[NodeId, Node] = {}
        self._loop = asyncio.get_running_loop()

    # -- life -----------------------------------------------------------------------------------

    async def start(self, programs: Programs, *, listener: Listener) -> None:
        """`programs` says what to run for a job, when it starts; `listener` hears each order that
        leaves, and passes on to programs what is for them."""
        self._programs = programs
        self._listener = listener
        await self._parts.engine.start(self._report)
        await self._recover()
        self.tasks.rely_on(self._deliver())
        self.tasks.rely_on(self._rounds.run())
        self.tasks.rely_on(nodes.watch(self._parts.engine, self._look))

    async def close(self) -> None:
        """Stop deciding; what runs goes on under its keepers."""
        await self._health.close()
        await self.tasks.close()
        self._alarm.cancel()
        await self._parts.engine.close()

    async def _recover(self) -> None:
        """Go on from what is written, and from what the engine finds."""
        parts = self._parts
        written = await asyncio.to_thread(recovery.read, parts.store)
        seen = await asyncio.to_thread(parts.engine.inventory)
        self._health.begin()
        self.kernel = Kernel(parts.rules)
        self.accounts = Accounts(written.usage, written.saved.jobs)
        self._epoch += 1
        self._record(written.restore(self.kernel, now=parts.clock()))
        for node_id in {node.id for node in written.saved.nodes} - {node.id for node in seen}:
            self.tell(NodeLost(node_id))
        self._look(seen)
        await parts.engine.adopt()

    # -- facts ----------------------------------------------------------------------------------

    def tell(self, event: Event, *, actor: str = "") -> Future[None]:
        """Record a fact. The future is done when it is on the disk."""
        self.require_sound()
        now = self._parts.clock()
        exits = exits_of(event, now) if isinstance(event, WorkersExited) else ()
        return self._record(self.kernel.apply(event, now), Batch(exits=exits, actor=actor))

    def tell_all(
        self, events: Iterable[Event], submissions: Sequence[Submission], *, actor: str
    ) -> Future[None]:
        """Facts that are on the disk together or not at all."""
        self.require_sound()
        effects = self.kernel.apply_all(events, self._parts.clock())
        return self._record(effects, Batch(submissions=tuple(submissions), actor=actor))

    def put(self, *rows: Row, samples: tuple[Sample, ...] = ()) -> Future[None]:
        """Rows that are none of the kernel's business."""
        self.require_sound()
        return self._write(Batch(rows=rows, samples=samples), [])

    async def durable(self, written: Future[None]) -> None:
        """Wait for the disk; a failure is the caller's to tell."""
        self.require_sound()
        try:
            await asyncio.wrap_future(written)
        except StoreError as error:
            self._health.fail(error)
            raise
        except UnfencedError as error:
            # Whoever asked finds it on those jobs, which end by it.
            log.warning("jobs are not kept", error=str(error))

    @property
    def trouble(self) -> str:
        """What keeps it from writing or acting, if something does."""
        return self._health.trouble

    def require_sound(self) -> None:
        self._health.require()

    async def changed(self) -> None:
        """Returns at the next change that is on the disk."""
        await self._changed.wait()

    def _report(self, event: Event) -> None:
        """What the engine tells. After a failed write it is asked again, so nothing is missed."""
        if self.trouble:
            return
        if isinstance(event, NodeSeen):
            if not self._sightings:
                self._loop.call_later(nodes.GATHER_S, self.tasks.rely_on_soon, self._look)
            self._sightings[event.node.id] = event.node
            return
        if isinstance(event, NodeLost):
            self._sightings.pop(event.node_id, None)
        elif isinstance(event, WorkersLost):
            self._look()  # A node that was closed by then is not planned for once more.
        if isinstance(event, WorkersExited) and needs_a_look(event, self.kernel):
            self.tasks.rely_on(self._examine(event))
        else:
            self.tell(event)

    async def _examine(self, event: WorkersExited) -> None:
        found = event
        with self._bugs.of(job=event.job_id):
            found = await examined(event, self.kernel, engine=self._parts.engine)
        if not self.trouble:
            self.tell(found)

    def _look(self, seen: Iterable[Node] = ()) -> None:
        seen, self._sightings = [*self._sightings.values(), *seen], {}
        if seen and not self.trouble:
            now_seen = [nodes.still_drained(each, self.kernel.nodes) for each in seen]
            self.tell_all(map(NodeSeen, now_seen), (), actor="")

    # -- effects --------------------------------------------------------------------------------

    def _record(self, effects: Effects, more: Batch = NOTHING) -> Future[None]:
        """Write what follows, with what belongs to it; then let the commands go."""
        self._alarm.set(self.kernel.next_timer_s())
        self._rounds.look()
        if not (effects.jobs or effects.nodes or effects.transitions or more.exits):
            if effects.commands:
                self._outbox.put_nowait(Due(self._epoch, DONE, effects.commands))
            return DONE
        usage = self.accounts.count(effects.jobs.values(), now=effects.now)
        return self._write(replace(more, effects=effects, rows=usage), effects.commands)

    def _write(self, batch: Batch, commands: list[Command]) -> Future[None]:
        written = self._parts.store.write(batch)
        submitted = tuple(each.job_id for each in batch.submissions)
        self._outbox.put_nowait(Due(self._epoch, written, commands, submitted))
        return written

    async def _deliver(self) -> None:
        """Commands leave in the order in which they were wanted, after what they rest upon."""
        while True:
            due = await self._outbox.get()
            try:
                unkept = await due.wait()
            except StoreError as error:
                if due.epoch == self._epoch:
                    self._health.fail(error)
                continue
            if unkept and due.epoch == self._epoch and not self.trouble:
                self._withdraw(unkept)
            self._announce()
            for command in due.orders(unkept):
                if due.epoch == self._epoch and not self.trouble:
                    await self._send(command, due.epoch)

    def _withdraw(self, unkept: Mapping[JobId, str]) -> None:
        """Jobs that nobody keeps. One that was to start meanwhile does not: what it runs, or its
        fence, was never written."""
        gone = (JobCancelled(each, reason=why) for each, why in unkept.items())
        self.tell_all(gone, (), actor="")

    async def _send(self, command: Command, epoch: int) -> None:
        self._listener(command)
        if isinstance(command, AskToStop):
            return
        starts = isinstance(command, StartWorkers | ChangeMembership)
        if starts and self.kernel.job(command.job_id) is None:
            # Given again after a restart, when the engine had already told how it ended.
            return
        try:
            program = await self._programs(command.job_id) if starts else None
            if epoch == self._epoch and not self.trouble:
                await self._parts.engine.apply(command, program)
        except (StoreError, OSError) as error:
            self._health.fail(error)
        except RotaError as error:
            log.error("command failed", command=str(command), error=str(error))
            if isinstance(command, StartWorkers) and not self.trouble:
                codes = dict.fromkeys(range(len(command.allocation)), CANNOT_RUN)
                self.tell(WorkersExited(command.job_id, command.attempt, codes, reason=str(error)))

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # -- rounds and time ------------------------------------------------------------------------

    def view(self) -> View:
        return self.kernel.view(self._parts.clock())

    def commit(self, plan: Plan) -> None:
        for violation in plan.violations:
            log.error("plan refused", violation=violation)
        self._record(self.kernel.commit(plan, self._parts.clock()))

    def use_policy(self, policy: Policy) -> None:
        """From the next round on, which is at once."""
        self.policy = policy
        self.kernel.want_round()
        self._rounds.look()

    @property
    def rounds(self) -> Rounds:
        return self._rounds

    def _wake(self) -> None:
        if not self.trouble:
            self.tell(TimerFired())


async def _nothing_to_run(job_id: JobId) -> Program:
    raise RotaError(f"no program to start for job {job_id}")


def _nobody_listens(_: Command) -> None:
    """Before the start there is no program that hears."""
