"""Delivery of commands to an engine that blocks or fails."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rota.core.model.commands import (
    ChangeMembership,
    Command,
    KillWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.model.events import (
    JobCancelled,
    JobSubmitted,
    MembershipChanged,
    TimerFired,
    WorkersExited,
    WorkersSilent,
    WorkersStarted,
)
from rota.core.model.job import Job, JobId, JobSpec, Queued, Running, Stopping
from rota.core.model.node import Node
from rota.daemon.runtime import command_delivery
from rota.daemon.runtime.controller import Controller, ControllerDependencies
from rota.engines.interface import EventSink, Program
from rota.errors import RotaError, UnavailableError, UserError
from rota.policies.registry import parse
from rota.store.memory import MemoryStore
from tests.support.builders import QUICK, cluster, job, live_job
from tests.support.timeouts import PATIENCE_S

A, B = JobId("a"), JobId("b")
NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/var/lib/rota/engine")
Fault = Callable[[Command], Exception | None]


class FaultyEngine:
    """Executes commands at once. `faults` decides which of them fail; `gates` block starts."""

    def __init__(self) -> None:
        self.faults: Fault = lambda _: None
        self.gates: dict[JobId, asyncio.Event] = {}
        self.blocked: list[JobId] = []
        self.tried: list[Command] = []
        self.done: list[Command] = []
        self.tell: EventSink = lambda _: None

    async def start(self, tell: EventSink) -> None:
        self.tell = tell

    async def adopt(self) -> None: ...

    async def close(self) -> None: ...

    def inventory(self) -> tuple[Node, ...]:
        return cluster("1x4")

    async def apply(self, command: Command, _: Program | None) -> None:
        self.tried.append(command)
        if isinstance(command, StartWorkers) and command.job_id in self.gates:
            self.blocked.append(command.job_id)
            await self.gates[command.job_id].wait()
        if (fault := self.faults(command)) is not None:
            raise fault
        self.done.append(command)
        fence = command.job_id, command.attempt
        match command:
            case StartWorkers():
                self.tell(WorkersStarted(*fence, frozenset(range(len(command.allocation)))))
            case StopWorkers():
                self.tell(WorkersExited(*fence, dict.fromkeys(command.workers, 143)))
            case KillWorkers():
                self.tell(WorkersExited(*fence, dict.fromkeys(command.workers, 137)))
            case _:
                pass


class House:
    """A controller with an engine and a source of programs that can fail."""

    def __init__(self, policy: str) -> None:
        self.engine, self.store = FaultyEngine(), MemoryStore()
        self.now = 100.0
        self.program_faults: list[Exception] = []
        self.program_gates: dict[JobId, asyncio.Event] = {}
        engine: Any = self.engine
        parts = ControllerDependencies(self.store, engine, lambda: self.now, QUICK)
        self.controller = Controller(parts, parse(policy))

    async def program(self, job_id: JobId) -> Program:
        if gate := self.program_gates.get(job_id):
            self.engine.blocked.append(job_id)
            await gate.wait()
        if self.program_faults:
            raise self.program_faults.pop(0)
        return Program(("p",))

    def submit(self, *specs: JobSpec) -> None:
        events = [JobSubmitted(JobId(spec.name), spec) for spec in specs]
        self.controller.apply_events(events, (), actor="ada")

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():  # noqa: ASYNC110 - the engine is a seam without an event
                await asyncio.sleep(0)

    def job(self, job_id: JobId) -> Job:
        found = self.controller.kernel.job(job_id)
        assert found is not None
        return found

    def is_in(self, job_id: JobId, phase: type) -> bool:
        found = self.controller.kernel.job(job_id)
        return found is not None and isinstance(found.phase, phase)

    async def running(self, *specs: JobSpec) -> None:
        self.submit(*specs)
        await self.until(lambda: all(self.is_in(JobId(each.name), Running) for each in specs))

    def reasons(self, job_id: JobId) -> list[str]:
        return [entry.transition.reason for entry in self.store.story(job_id)]


def play(scenario: Callable[[House], Awaitable[None]], *, policy: str = "fifo") -> None:
    async def run() -> None:
        house = House(policy)
        await house.controller.start(house.program, listeners=())
        try:
            await scenario(house)
            assert not house.controller.trouble
        finally:
            await house.controller.close()

    asyncio.run(run())


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_delivery, "FIRST_RETRY_S", 0.0)


@pytest.mark.parametrize("place", ["engine", "program"])
def test_a_start_that_blocks_delays_no_other_job(place: str) -> None:
    async def scenario(house: House) -> None:
        await house.running(job("b"))
        gates = house.engine.gates if place == "engine" else house.program_gates
        gates[A] = asyncio.Event()
        house.submit(job("a"))
        await house.until(lambda: house.engine.blocked == [A])
        house.controller.apply_event(WorkersSilent(B, 1, frozenset({0}), "hangs"))
        await house.until(lambda: KillWorkers(B, 1, (0,)) in house.engine.done)
        assert house.engine.blocked == [A]
        gates[A].set()
        await house.until(lambda: house.is_in(A, Running))

    play(scenario)


def test_many_starts_that_block_delay_no_stop() -> None:
    async def scenario(house: House) -> None:
        await house.running(job("b", cpus=0.01))
        names = [JobId(f"a{n}") for n in range(2 * command_delivery.MAX_PREPARATIONS)]
        for each in names:
            house.program_gates[each] = asyncio.Event()
        house.submit(*(job(each, gpus_per_worker=0, cpus=0.01) for each in names))
        limit = command_delivery.MAX_PREPARATIONS
        await house.until(lambda: len(house.engine.blocked) == limit)
        for each in (B, names[-1]):
            house.controller.apply_event(JobCancelled(each))
            await house.until(lambda each=each: house.controller.kernel.job(each) is None)
        assert len(house.engine.blocked) == limit
        for each in house.program_gates.values():
            each.set()
        await house.until(lambda: all(house.is_in(each, Running) for each in names[:-1]))

    play(scenario)


def test_starts_of_one_user_delay_no_other_user() -> None:
    async def scenario(house: House) -> None:
        limit = command_delivery.MAX_PREPARATIONS
        names = [JobId(f"a{n}") for n in range(2 * limit)]
        for each in names:
            house.program_gates[each] = asyncio.Event()
        house.submit(*(job(each, gpus_per_worker=0, cpus=0.01) for each in names))
        await house.until(lambda: len(house.engine.blocked) == limit)
        await house.running(job("b", gpus_per_worker=0, cpus=0.01, user="bob"))
        assert len(house.engine.blocked) == limit

    play(scenario)


def test_preparation_of_a_cancelled_job_keeps_its_slot_until_it_ends() -> None:
    async def scenario(house: House) -> None:
        limit = command_delivery.MAX_PREPARATIONS
        names = [JobId(f"a{n}") for n in range(limit + 1)]
        for each in names:
            house.program_gates[each] = asyncio.Event()
        house.submit(*(job(each, gpus_per_worker=0, cpus=0.01) for each in names))
        await house.until(lambda: len(house.engine.blocked) == limit)
        first, last = house.engine.blocked[0], names[-1]
        house.controller.apply_event(JobCancelled(first))
        await house.until(lambda: house.controller.kernel.job(first) is None)
        for _ in range(20):
            await asyncio.sleep(0)
        assert last not in house.engine.blocked
        house.program_gates[first].set()
        await house.until(lambda: last in house.engine.blocked)

    play(scenario)


def test_a_cancelled_job_does_not_wait_for_its_own_start() -> None:
    async def scenario(house: House) -> None:
        house.program_gates[A] = asyncio.Event()
        house.submit(job("a"))
        await house.until(lambda: house.engine.blocked == [A])
        house.controller.apply_event(JobCancelled(A))
        await house.until(lambda: house.controller.kernel.job(A) is None)
        assert house.engine.done == [StopWorkers(A, 1, (0,), 30.0)]

    play(scenario)


def test_commands_of_one_job_stay_in_order() -> None:
    async def scenario(house: House) -> None:
        house.engine.gates[A] = asyncio.Event()
        house.submit(job("a"))
        await house.until(lambda: house.engine.blocked == [A])
        house.controller.apply_event(JobCancelled(A))
        for _ in range(20):
            await asyncio.sleep(0)
        assert [type(each) for each in house.engine.tried] == [StartWorkers]
        house.engine.gates[A].set()
        await house.until(lambda: house.controller.kernel.job(A) is None)
        assert [type(each) for each in house.engine.done] == [StartWorkers, StopWorkers]

    play(scenario)


@pytest.mark.parametrize(
    "fault",
    [
        NO_SPACE,
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/home/ada"),
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        UnavailableError("/var/lib/rota/snapshots: no space left on the disk"),
    ],
)
@pytest.mark.parametrize("place", ["engine", "program"])
def test_a_start_without_room_waits_in_the_queue(place: str, fault: Exception) -> None:
    async def scenario(house: House) -> None:
        if place == "engine":
            faults = [fault]
            house.engine.faults = lambda command: (
                faults.pop() if faults and isinstance(command, StartWorkers) else None
            )
        else:
            house.program_faults = [fault]
        house.submit(job("a"))
        await house.until(lambda: house.is_in(A, Queued) and house.job(A).attempt == 1)
        phase = house.job(A).phase
        assert isinstance(phase, Queued)
        assert (
            (fault.strerror or "").lower() in phase.reason
            if isinstance(fault, OSError)
            else (str(fault) in phase.reason)
        )
        assert (phase.not_before_s, house.job(A).failures) == (110.0, 0)
        house.now = 110.0
        house.controller.apply_event(TimerFired())
        await house.until(lambda: house.is_in(A, Running))
        assert house.job(A).attempt == 2

    play(scenario)


def test_a_start_that_can_never_work_fails_the_job() -> None:
    async def scenario(house: House) -> None:
        house.program_faults = [UserError("the shipped code does not exist", "ship it again")]
        house.submit(job("a"))
        await house.until(lambda: house.controller.kernel.job(A) is None)
        assert "ship it again" in house.reasons(A)[-1]

    play(scenario)


@pytest.mark.parametrize("fault", [RotaError("no answer"), NO_SPACE])
def test_a_stop_that_fails_is_retried(fault: Exception) -> None:
    async def scenario(house: House) -> None:
        await house.running(job("a"))
        faults = [fault] * 3
        house.engine.faults = lambda _: faults.pop() if faults else None
        house.controller.apply_event(JobCancelled(A))
        await house.until(lambda: house.controller.kernel.job(A) is None)
        assert house.engine.tried[1:] == [StopWorkers(A, 1, (0,), 30.0)] * 4
        told = [each for each in house.reasons(A) if "could not be stopped" in each]
        assert len(told) == 1, "the history has the reason once"

    play(scenario)


def test_a_kill_that_fails_is_retried_until_the_worker_is_gone() -> None:
    async def scenario(house: House) -> None:
        await house.running(job("a"))
        house.engine.faults = lambda command: (
            RotaError("no answer") if isinstance(command, KillWorkers) else None
        )
        house.controller.apply_event(WorkersSilent(A, 1, frozenset({0}), "hangs"))
        await house.until(lambda: house.engine.tried.count(KillWorkers(A, 1, (0,))) > 2)
        house.engine.tell(WorkersExited(A, 1, {0: 0}))
        await house.until(lambda: house.controller.kernel.job(A) is None)

    play(scenario)


def test_a_stop_does_not_wait_for_a_kill_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_delivery, "FIRST_RETRY_S", 1e6)

    async def scenario(house: House) -> None:
        await house.running(job("a"))
        house.engine.faults = lambda command: (
            RotaError("no answer") if isinstance(command, KillWorkers) else None
        )
        house.controller.apply_event(WorkersSilent(A, 1, frozenset({0}), "hangs"))
        await house.until(lambda: KillWorkers(A, 1, (0,)) in house.engine.tried)
        house.controller.apply_event(JobCancelled(A))
        await house.until(lambda: house.controller.kernel.job(A) is None)

    play(scenario)


def test_a_growth_that_the_engine_fails_frees_its_gpus() -> None:
    async def scenario(house: House) -> None:
        await house.running(job("b", gpus=3), live_job("a", gpus="1..4"))
        house.engine.faults = lambda command: (
            RotaError("no room for more") if isinstance(command, ChangeMembership) else None
        )
        house.engine.tell(WorkersExited(B, 1, dict.fromkeys(range(3), 0)))
        await house.until(lambda: len(house.job(A).members) == 4)
        await house.until(lambda: len(house.job(A).members) == 1)
        # The change back to one worker needs no new worker: the workers report it themselves.
        house.controller.apply_event(MembershipChanged(A, 1, house.job(A).generation))
        house.submit(job("c", gpus=3))
        await house.until(lambda: house.is_in(JobId("c"), Running))
        assert "no room for more" in str(house.job(A).cap)

    play(scenario, policy="elastic-fifo")


def test_a_failed_stop_is_told_while_it_lasts() -> None:
    async def scenario(house: House) -> None:
        await house.running(job("a"))
        house.engine.faults = lambda _: NO_SPACE
        house.controller.apply_event(JobCancelled(A))
        await house.until(lambda: len(house.engine.tried) > 3)
        assert house.is_in(A, Stopping)
        assert "no space left on device" in house.reasons(A)[-1]
        house.engine.faults = lambda _: None
        await house.until(lambda: house.controller.kernel.job(A) is None)

    play(scenario)
