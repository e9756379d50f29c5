"""A shell whose store refuses a submit, or a fence: nobody else notices."""

import asyncio
from typing import Any

import pytest

from rota.core.commands import Command, StartWorkers, StopWorkers
from rota.core.events import JobSubmitted, WorkersExited
from rota.core.model import Ended, JobId, Node
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
