"""A shell whose store refuses a submit or a fence, or in which there is a bug: who notices it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from rota.core.commands import Command, StartWorkers, StopWorkers
from rota.core.events import JobSubmitted, NodeSeen, WorkersExited
from rota.core.model import Ended, JobId, Node
from rota.daemon.machine import Address, Machine, Setup
from rota.daemon.people import Caller
from rota.daemon.shell import Parts, Shell
from rota.engines.base import Facts, Program
from rota.errors import NotKeptError, UserError
from rota.policies.registry import parse
from rota.store.cluster import ClusterStore
from rota.store.memory import MemoryStore
from rota.store.records import Submission
from tests.builders import QUICK, cluster, job
from tests.objects import Objects
from tests.patience import PATIENCE_S

A, B = JobId("aaaaaaaa"), JobId("bbbbbbbb")
PROGRAM = '{"request":{"command":["p"]}}'


class Engine:
    """Remembers whom it was told to start."""

    def __init__(self) -> None:
        self.started: list[JobId] = []
        self.is_told = asyncio.Event()

    async def start(self, facts: Facts) -> None:
        self._facts = facts

    async def adopt(self) -> None: ...

    async def close(self) -> None: ...

    def inventory(self) -> tuple[Node, ...]:
        return cluster("1x4")

    async def apply(self, command: Command, _: Program | None) -> None:
        if isinstance(command, StartWorkers):
            self.started.append(command.job_id)
            self.is_told.set()
        elif isinstance(command, StopWorkers):
            codes = dict.fromkeys(command.workers, 143)
            self._facts(WorkersExited(command.job_id, command.attempt, codes))


def test_a_job_that_the_cluster_does_not_keep_never_was() -> None:
    async def scenario() -> None:
        objects, engine = Objects(refuses={A}), Engine()
        store = ClusterStore(MemoryStore(), objects, key=b"k", nodes=engine.inventory)
        made: Any = engine
        shell = Shell(Parts(store, made, lambda: 100.0, QUICK), parse("fifo"))

        async def program(job_id: JobId) -> Program:
            if store.submission(job_id) is None:
                raise UserError("nobody knows what it runs")
            return Program(("p",))

        await shell.start(program, listener=lambda _: None)
        written = [
            shell.tell_all([JobSubmitted(each, job(each))], [submission(each)], actor="ada")
            for each in (A, B)
        ]
        with pytest.raises(NotKeptError, match="exceeded quota"):
            await shell.durable(written[0])
        await shell.durable(written[1])
        async with asyncio.timeout(PATIENCE_S):
            await engine.is_told.wait()
        assert (engine.started, list(shell.kernel.jobs), shell.trouble) == ([B], [B], "")
        assert set(objects.found) == {B}
        await shell.close()
        await asyncio.to_thread(store.close)

    asyncio.run(scenario())


def test_a_job_whose_fence_is_refused_never_starts_and_ends_with_the_reason() -> None:
    async def scenario() -> None:
        objects, engine = Objects(), Engine()
        objects.mute = {A}
        store = ClusterStore(MemoryStore(), objects, key=b"k", nodes=engine.inventory)
        made: Any = engine
        shell = Shell(Parts(store, made, lambda: 100.0, QUICK), parse("fifo"))

        async def program(_: JobId) -> Program:
            return Program(("p",))

        await shell.start(program, listener=lambda _: None)
        submits = [JobSubmitted(each, job(each)) for each in (A, B)]
        await shell.durable(shell.tell_all(submits, list(map(submission, (A, B))), actor="ada"))
        async with asyncio.timeout(PATIENCE_S):
            while (found := store.job(A)) is None or not isinstance(found.phase, Ended):
                await shell.changed()
        assert found.phase.reason == "the cluster does not keep its status: not in this lab"
        assert (engine.started, list(shell.kernel.jobs), shell.trouble) == ([B], [B], "")
        await shell.close()
        await asyncio.to_thread(store.close)

    asyncio.run(scenario())


def submission(job_id: JobId) -> Submission:
    return Submission(job_id, "ada", 1000, PROGRAM)


class Stumbling(Engine):
    """Tells what it is made to; there is a bug in how it reads logs."""

    def __init__(self) -> None:
        super().__init__()
        self.tell: Facts = lambda _: None

    async def start(self, facts: Facts) -> None:  # type: ignore[override]
        self.tell = facts

    def logs(self, *_: object) -> None:
        raise KeyError("x")


class Clock:
    """Stands still. Once it is broken, whoever looks first stumbles."""

    is_broken = False

    def __call__(self) -> float:
        if self.is_broken:
            self.is_broken = False
            raise KeyError("x")
        return 100.0


async def with_a_job(play: Callable[[Shell, Stumbling, Clock], Awaitable[None]]) -> None:
    engine, clock = Stumbling(), Clock()
    made: Any = engine
    shell = Shell(Parts(MemoryStore(), made, clock, QUICK), parse("fifo"))

    async def program(_: JobId) -> Program:
        return Program(("p",))

    await shell.start(program, listener=lambda _: None)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await shell.durable(
                shell.tell_all([JobSubmitted(A, job(A))], [submission(A)], actor="ada")
            )
            await engine.is_told.wait()
            await play(shell, engine, clock)
    finally:
        await shell.close()


def test_an_exit_is_told_although_its_log_cannot_be_looked_at() -> None:
    async def play(shell: Shell, engine: Stumbling, _: Clock) -> None:
        engine.tell(WorkersExited(A, 1, {0: 1}))
        while A in shell.kernel.jobs:
            await shell.changed()
        assert not shell.trouble

    with capture_logs() as lines:
        asyncio.run(with_a_job(play))
    [told] = [each for each in lines if each["log_level"] == "error"]
    assert (told["job"], type(told["exc_info"])) == (A, KeyError)


def test_a_bug_in_what_a_timer_rings_is_everybodys() -> None:
    async def play(shell: Shell, engine: Stumbling, clock: Clock) -> None:
        [node] = cluster("1x5")
        clock.is_broken = True
        engine.tell(NodeSeen(node))
        await shell.broken.wait()
        assert "a bug in rota (KeyError)" in shell.trouble

    asyncio.run(with_a_job(play))


def test_a_farewell_that_dies_is_noticed() -> None:
    """Nothing is decided any more by then: the daemon would neither work nor end."""

    async def play(shell: Shell, engine: Stumbling, clock: Clock) -> None:
        desk: Any = SimpleNamespace(shell=shell, clock=clock)
        setup = Setup("fake", Address("", ""), "fifo", Path("policy"))
        stumbling: Any = engine
        machine = Machine(desk, stumbling, tuple, setup=setup)
        clock.is_broken = True
        machine.stop(Caller("ada", is_admin=True), stop_jobs=True)
        await shell.broken.wait()

    asyncio.run(with_a_job(play))
