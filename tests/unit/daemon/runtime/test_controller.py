"""The controller with a store that rejects writes, and with bugs in its tasks."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from rota.api.listeners import TcpListener
from rota.core.lifecycle.states import JobState
from rota.core.model.commands import Command, StartWorkers, StopWorkers
from rota.core.model.events import JobSubmitted, NodeSeen, WorkersExited
from rota.core.model.job import Ended, JobId
from rota.core.model.node import Node
from rota.daemon.access.authorization import Caller
from rota.daemon.cluster_service import ClusterService, DaemonAddress, DaemonSetup
from rota.daemon.runtime.controller import Controller, ControllerDependencies
from rota.engines.interface import EventSink, Program
from rota.errors import StoreError, StoreErrorKind, UserError, WriteRejectedError
from rota.policies.registry import parse
from rota.server.backend import NoGpuInfo
from rota.store.interface import Batch
from rota.store.kubernetes.store import KubernetesStore
from rota.store.memory import MemoryStore
from rota.store.records import Submission
from tests.support.builders import QUICK, cluster, job
from tests.support.fake_object_api import FakeObjectApi
from tests.support.timeouts import PATIENCE_S

A, B = JobId("aaaaaaaa"), JobId("bbbbbbbb")
PROGRAM = '{"request":{"command":["p"]}}'


class Engine:
    """Records the jobs that it was told to start."""

    def __init__(self) -> None:
        self.started: list[JobId] = []
        self.is_told = asyncio.Event()

    async def start(self, facts: EventSink) -> None:
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


def test_a_job_that_the_store_rejects_is_cancelled() -> None:
    async def scenario() -> None:
        objects, engine = FakeObjectApi(refuses={A}), Engine()
        store = KubernetesStore(MemoryStore(), objects, key=b"k", nodes=engine.inventory)
        made: Any = engine
        controller = Controller(
            ControllerDependencies(store, made, lambda: 100.0, QUICK), parse("fifo")
        )

        async def program(job_id: JobId) -> Program:
            if store.submission(job_id) is None:
                raise UserError("nobody knows what it runs")
            return Program(("p",))

        await controller.start(program, listeners=())
        written = [
            controller.apply_events(
                [JobSubmitted(each, job(each))], [submission(each)], actor="ada"
            )
            for each in (A, B)
        ]
        with pytest.raises(WriteRejectedError, match="exceeded quota"):
            await controller.durable(written[0])
        await controller.durable(written[1])
        async with asyncio.timeout(PATIENCE_S):
            await engine.is_told.wait()
            while A in controller.jobs:
                await controller.changed()
        assert (engine.started, list(controller.jobs), controller.trouble) == ([B], [B], "")
        assert set(objects.found) == {B}
        await controller.close()
        await asyncio.to_thread(store.close)

    asyncio.run(scenario())


def test_a_job_whose_fence_is_rejected_never_starts_and_ends_with_the_reason() -> None:
    async def scenario() -> None:
        objects, engine = FakeObjectApi(), Engine()
        objects.mute = {A}
        store = KubernetesStore(MemoryStore(), objects, key=b"k", nodes=engine.inventory)
        made: Any = engine
        controller = Controller(
            ControllerDependencies(store, made, lambda: 100.0, QUICK), parse("fifo")
        )

        async def program(_: JobId) -> Program:
            return Program(("p",))

        await controller.start(program, listeners=())
        submits = [JobSubmitted(each, job(each)) for each in (A, B)]
        await controller.durable(
            controller.apply_events(submits, list(map(submission, (A, B))), actor="ada")
        )
        async with asyncio.timeout(PATIENCE_S):
            while (found := store.job(A)) is None or not isinstance(found.phase, Ended):
                await controller.changed()
        assert found.phase.reason == "the cluster does not keep its status: not in this lab"
        assert (engine.started, list(controller.jobs), controller.trouble) == ([B], [B], "")
        await controller.close()
        await asyncio.to_thread(store.close)

    asyncio.run(scenario())


class RefusesStarts(MemoryStore):
    """Refuses to write any start."""

    def write(self, batch: Batch) -> Future[None]:
        if any(each.after is JobState.STARTING for each in batch.effects.transitions):
            raise StoreError(StoreErrorKind.REFUSED, "not this one")
        return super().write(batch)


def test_a_job_whose_start_the_store_refuses_is_held_by_one_recovery() -> None:
    async def scenario() -> None:
        store, made = RefusesStarts(), cast(Any, Engine())
        controller = Controller(
            ControllerDependencies(store, made, lambda: 100.0, QUICK), parse("fifo")
        )

        async def program(_: JobId) -> Program:
            return Program(("p",))

        await controller.start(program, listeners=())
        await asyncio.sleep(0)  # The loop of rounds waits: from now on, short rounds may run.
        await controller.durable(
            controller.apply_events([JobSubmitted(A, job(A))], [submission(A)], actor="ada")
        )
        async with asyncio.timeout(PATIENCE_S):
            while (found := store.job(A)) is None or found.state is not JobState.HELD:
                await controller.changed()
        assert (made.started, controller.trouble) == ([], "")
        await controller.close()

    asyncio.run(scenario())


def submission(job_id: JobId) -> Submission:
    return Submission(job_id, "ada", 1000, PROGRAM)


class Stumbling(Engine):
    """Tells what it is made to; there is a bug in how it reads logs."""

    def __init__(self) -> None:
        super().__init__()
        self.tell: EventSink = lambda _: None

    async def start(self, facts: EventSink) -> None:  # type: ignore[override]
        self.tell = facts

    def logs(self, *_: object) -> None:
        raise KeyError("x")


class Clock:
    """Stands still. Once it is broken, the next read raises an error."""

    is_broken = False

    def __call__(self) -> float:
        if self.is_broken:
            self.is_broken = False
            raise KeyError("x")
        return 100.0


async def with_a_job(play: Callable[[Controller, Stumbling, Clock], Awaitable[None]]) -> None:
    engine, clock = Stumbling(), Clock()
    made: Any = engine
    controller = Controller(
        ControllerDependencies(MemoryStore(), made, clock, QUICK), parse("fifo")
    )

    async def program(_: JobId) -> Program:
        return Program(("p",))

    await controller.start(program, listeners=())
    try:
        async with asyncio.timeout(PATIENCE_S):
            await controller.durable(
                controller.apply_events([JobSubmitted(A, job(A))], [submission(A)], actor="ada")
            )
            await engine.is_told.wait()
            await play(controller, engine, clock)
    finally:
        await controller.close()


def test_an_exit_is_recorded_if_its_log_cannot_be_read() -> None:
    async def play(controller: Controller, engine: Stumbling, _: Clock) -> None:
        engine.tell(WorkersExited(A, 1, {0: 1}))
        while A in controller.jobs:
            await controller.changed()
        assert not controller.trouble

    with capture_logs() as lines:
        asyncio.run(with_a_job(play))
    [told] = [each for each in lines if each["log_level"] == "error"]
    assert (told["job"], type(told["exc_info"])) == (A, KeyError)


def test_a_bug_in_a_timer_callback_breaks_the_daemon() -> None:
    async def play(controller: Controller, engine: Stumbling, clock: Clock) -> None:
        [node] = cluster("1x5")
        clock.is_broken = True
        engine.tell(NodeSeen(node))
        await controller.broken.wait()
        assert "a bug in rota (KeyError)" in controller.trouble

    asyncio.run(with_a_job(play))


def test_a_bug_while_jobs_stop_breaks_the_daemon() -> None:
    """Scheduling is paused by then: otherwise the daemon would neither work nor stop."""

    async def play(controller: Controller, engine: Stumbling, clock: Clock) -> None:
        setup = DaemonSetup("fake", DaemonAddress("", TcpListener(None)), "fifo", Path("policy"))
        stumbling: Any = engine
        cluster_service = ClusterService(
            controller, stumbling, gpus=NoGpuInfo(), setup=setup, clock=clock
        )
        clock.is_broken = True
        cluster_service.stop(Caller("ada", is_admin=True), stop_jobs=True)
        await controller.broken.wait()

    asyncio.run(with_a_job(play))
