"""A policy that does not return, or raises: everything else goes on, and the daemon says so."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from rota.api.listeners import TcpListener
from rota.core.model.commands import Command, StartWorkers
from rota.core.model.events import JobCancelled, JobSubmitted, WorkersExited, WorkersStarted
from rota.core.model.job import Job, JobId, Queued, Running
from rota.core.model.node import Node
from rota.core.scheduling.policy_api import Budget, Policy, Targets
from rota.daemon.cluster_service import ClusterService, DaemonAddress, DaemonSetup
from rota.daemon.runtime import scheduling_loop
from rota.daemon.runtime.controller import Controller, ControllerDependencies
from rota.engines.interface import EventSink, Program
from rota.policies.registry import parse
from rota.server.backend import NoGpuInfo
from rota.store.interface import Batch
from rota.store.memory import MemoryStore
from tests.support.builders import QUICK, cluster, job
from tests.support.timeouts import PATIENCE_S

A, B, C = JobId("a"), JobId("b"), JobId("c")


class BlockingPolicy:
    """First in, first out; while the gate is closed, it does not return."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.n_inside = self.most_inside = 0
        self.failure: BaseException | None = None
        self._fifo = parse("fifo")

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        self.n_inside += 1
        self.most_inside = max(self.most_inside, self.n_inside)
        self.gate.wait()
        self.n_inside -= 1
        if self.failure is not None:
            raise self.failure
        return self._fifo.size(jobs, budget, now=now)


class QuickEngine:
    async def start(self, tell: EventSink) -> None:
        self.tell = tell

    async def adopt(self) -> None: ...

    async def close(self) -> None: ...

    def inventory(self) -> tuple[Node, ...]:
        return cluster("1x4")

    async def apply(self, command: Command, _: Program | None) -> None:
        if isinstance(command, StartWorkers):
            workers = frozenset(range(len(command.allocation)))
            self.tell(WorkersStarted(command.job_id, command.attempt, workers))


class RecordingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.states: list[str] = []
        """The states of the jobs in each write."""

    def write(self, batch: Batch) -> Future[None]:
        self.states += [job.state.value for job in batch.effects.jobs.values()]
        return super().write(batch)


class Daemon:
    def __init__(self, policy: Policy | None = None) -> None:
        self.policy, self.engine = BlockingPolicy(), QuickEngine()
        engine: Any = self.engine
        self.store = RecordingStore()
        parts = ControllerDependencies(self.store, engine, lambda: 100.0, QUICK)
        self.controller = Controller(parts, policy or self.policy)
        setup = DaemonSetup(
            "fake", DaemonAddress("", TcpListener(None)), "blocking", Path("policy")
        )
        self.service = ClusterService(
            self.controller, engine, gpus=NoGpuInfo(), setup=setup, clock=lambda: 100.0
        )

    async def start(self) -> None:
        async def program(_: JobId) -> Program:
            return Program(("p",))

        await self.controller.start(program, listeners=())

    async def submit(self, job_id: JobId) -> None:
        await self.controller.durable(
            self.controller.apply_event(JobSubmitted(job_id, job(job_id)))
        )

    def is_in(self, job_id: JobId, phase: type) -> bool:
        found = self.controller.kernel.job(job_id)
        return found is not None and isinstance(found.phase, phase)

    async def hang(self) -> None:
        """A runs; the round for B does not end."""
        await self.submit(A)
        while not self.is_in(A, Running):
            await self.controller.changed()
        self.policy.gate.clear()
        await self.submit(B)
        # The round before may be reported, too: wait until the policy is inside.
        while not (self.policy.n_inside and self.service.status().scheduling):  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling_loop, "STALL_S", 0.0)


def test_a_policy_that_does_not_return_stops_rounds_only() -> None:
    async def scenario() -> None:
        daemon = Daemon()
        await daemon.start()
        async with asyncio.timeout(PATIENCE_S):
            await daemon.hang()
            status = daemon.service.status()
            assert "BlockingPolicy has not returned" in status.scheduling
            assert (status.trouble, daemon.service.is_broken) == ("", False)
            daemon.engine.tell(WorkersExited(A, 1, {0: 0}))
            while A in daemon.controller.kernel.jobs:
                await daemon.controller.changed()
            await daemon.submit(C)
            await daemon.controller.durable(daemon.controller.apply_event(JobCancelled(C)))
            assert C not in daemon.controller.kernel.jobs
            assert daemon.is_in(B, Queued)
            assert daemon.policy.n_inside == 1
            daemon.policy.gate.set()
            while not daemon.is_in(B, Running):
                await daemon.controller.changed()
        assert daemon.service.status().scheduling == ""
        assert daemon.policy.most_inside == 1
        await daemon.controller.close()

    asyncio.run(scenario())


def test_a_daemon_stops_although_its_policy_does_not_return() -> None:
    made: list[Daemon] = []

    async def scenario() -> None:
        daemon = Daemon()
        made.append(daemon)
        await daemon.start()
        async with asyncio.timeout(PATIENCE_S):
            await daemon.hang()
            await daemon.controller.close()

    # The end of the event loop waits for the threads that it owns.
    asyncio.run(scenario())
    assert made[0].policy.n_inside == 1
    made[0].policy.gate.set()


@pytest.mark.parametrize("failure", [ValueError("no plan"), KeyboardInterrupt()])
def test_a_policy_that_raises_is_reported_until_a_round_succeeds(
    failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling_loop, "STALL_S", PATIENCE_S)

    async def scenario() -> None:
        daemon = Daemon()
        await daemon.start()
        daemon.policy.failure = failure
        async with asyncio.timeout(PATIENCE_S):
            await daemon.submit(A)
            while not daemon.service.stall:  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0)
            error = f"the policy raised {type(failure).__name__}"
            what = f"policy BlockingPolicy made no valid plan: {error}"
            assert daemon.service.status().scheduling.startswith(what)
            assert daemon.is_in(A, Queued)
            daemon.policy.failure = None
            await daemon.submit(B)
            while not daemon.is_in(A, Running):
                await daemon.controller.changed()
        assert daemon.service.stall == ""
        await daemon.controller.close()

    asyncio.run(scenario())


async def idle(daemon: Daemon) -> None:
    """Wait until the rounds of the start are over."""
    async with asyncio.timeout(PATIENCE_S):
        while daemon.controller.scheduling_loop.is_busy:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0)


def test_a_job_that_fits_starts_with_the_write_that_submits_it() -> None:
    async def scenario() -> None:
        daemon = Daemon(parse("elastic-fifo"))
        await daemon.start()
        await idle(daemon)
        daemon.controller.apply_event(JobSubmitted(A, job(A)))
        assert daemon.store.states == ["queued", "starting"]
        daemon.controller.apply_event(JobSubmitted(B, job(B)))
        assert daemon.store.states == ["queued", "starting", "queued"], "no pause between rounds"
        async with asyncio.timeout(PATIENCE_S):
            while not daemon.is_in(B, Running):
                await daemon.controller.changed()
        await daemon.controller.close()

    asyncio.run(scenario())


def test_the_policy_of_a_user_runs_in_a_thread() -> None:
    async def scenario() -> None:
        daemon = Daemon()
        await daemon.start()
        await idle(daemon)
        daemon.controller.apply_event(JobSubmitted(A, job(A)))
        assert daemon.store.states == ["queued"]
        await daemon.controller.close()

    asyncio.run(scenario())


def test_an_event_is_written_although_its_round_has_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        daemon = Daemon(parse("elastic-fifo"))
        await daemon.start()
        await idle(daemon)
        monkeypatch.setattr(scheduling_loop, "decide", lambda *_: 1 // 0)
        daemon.controller.apply_event(JobSubmitted(A, job(A)))
        assert daemon.store.states == ["queued"]
        async with asyncio.timeout(PATIENCE_S):
            while "ZeroDivisionError" not in daemon.service.stall:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0)
        assert not daemon.controller.trouble
        await daemon.controller.close()

    asyncio.run(scenario())
