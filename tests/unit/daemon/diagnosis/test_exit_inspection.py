"""Inspection of exits by a controller: each log is read once, and not one after the other."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from rota.core.model.commands import Command, StartWorkers, StopWorkers
from rota.core.model.events import JobSubmitted, WorkersExited, WorkersLost, WorkersStarted
from rota.core.model.job import JobId, JobSpec, Running
from rota.core.model.node import Node
from rota.daemon.diagnosis.exit_inspection import MAX_CONCURRENT_READS
from rota.daemon.runtime.controller import Controller, ControllerDependencies
from rota.engines.exit_reasons import OUT_OF_MEMORY
from rota.engines.interface import EventSink, LogChunk, LogQuery, Program, WorkerId
from rota.policies.registry import parse
from rota.store.memory import MemoryStore
from tests.support.builders import QUICK, cluster, job, live_job
from tests.support.timeouts import PATIENCE_S

A = JobId("a")
N_GANG = 512
CUDA_OOM = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


class LoggingEngine:
    """Starts workers at once, and counts how often their logs are read."""

    def __init__(self) -> None:
        self.reads: Counter[int] = Counter()
        self.n_open = self.most_open = 0
        self.outputs: dict[int, bytes] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.tell: EventSink = lambda _: None

    async def start(self, tell: EventSink) -> None:
        self.tell = tell

    async def adopt(self) -> None: ...

    async def close(self) -> None: ...

    def inventory(self) -> tuple[Node, ...]:
        return cluster("64x8")

    async def apply(self, command: Command, _: Program | None) -> None:
        fence = command.job_id, command.attempt
        if isinstance(command, StartWorkers):
            self.tell(WorkersStarted(*fence, frozenset(range(len(command.allocation)))))
        elif isinstance(command, StopWorkers):
            self.tell(WorkersExited(*fence, dict.fromkeys(command.workers, 143)))

    async def logs(self, worker: WorkerId, _: LogQuery) -> AsyncIterator[LogChunk]:
        self.reads[worker.worker] += 1
        self.n_open += 1
        self.most_open = max(self.most_open, self.n_open)
        await self.gate.wait()
        await asyncio.sleep(0)
        self.n_open -= 1
        yield LogChunk(0.0, self.outputs.get(worker.worker, b"fine\n"))


Scenario = Callable[[Controller, LoggingEngine], Awaitable[None]]


def play(spec: JobSpec, scenario: Scenario) -> str:
    """Run a scenario with a running job. Returns the last reason of its history."""
    store = MemoryStore()

    async def program(_: JobId) -> Program:
        return Program(("p",))

    async def run() -> None:
        engine = LoggingEngine()
        made: Any = engine
        parts = ControllerDependencies(store, made, lambda: 100.0, QUICK)
        controller = Controller(parts, parse("elastic-fifo"))
        await controller.start(program, listeners=())
        try:
            async with asyncio.timeout(PATIENCE_S):
                controller.apply_event(JobSubmitted(A, spec))
                while not is_running(controller):
                    await controller.changed()
                await scenario(controller, engine)
        finally:
            await controller.close()

    asyncio.run(run())
    return store.story(A)[-1].transition.reason


def is_running(controller: Controller) -> bool:
    found = controller.kernel.job(A)
    return found is not None and isinstance(found.phase, Running)


async def end(controller: Controller) -> None:
    while A in controller.kernel.jobs:
        await controller.changed()


def test_each_log_of_a_gang_that_fails_is_read_once() -> None:
    async def scenario(controller: Controller, engine: LoggingEngine) -> None:
        engine.outputs[N_GANG - 1] = CUDA_OOM
        for number in range(N_GANG):
            engine.tell(WorkersExited(A, 1, {number: 1}))
        await end(controller)
        assert engine.reads == dict.fromkeys(range(N_GANG), 1)
        assert 1 < engine.most_open <= MAX_CONCURRENT_READS

    assert "the GPU ran out of memory (OOM)" in play(job("a", gpus=N_GANG), scenario)


def test_loss_during_an_inspection_is_recorded_after_the_failure() -> None:
    async def scenario(controller: Controller, engine: LoggingEngine) -> None:
        engine.gate.clear()
        engine.tell(WorkersExited(A, 1, {0: 1}))
        engine.tell(WorkersLost(A, 1, frozenset({1})))
        engine.gate.set()
        while (found := controller.kernel.job(A)) is not None:
            assert found.attempt == 1, "the failed job is retried as a lost one"
            await controller.changed()

    assert "exit code 1" in play(job("a", gpus=2), scenario)


def test_a_worker_that_exits_during_an_inspection_is_read_again() -> None:
    """Its output was not complete before. The job continues, so that this exit counts by itself."""

    async def scenario(controller: Controller, engine: LoggingEngine) -> None:
        engine.gate.clear()
        engine.tell(WorkersExited(A, 1, {0: 137}))
        while engine.n_open < 3:  # noqa: ASYNC110 - the engine is a seam without an event
            await asyncio.sleep(0)
        engine.tell(WorkersExited(A, 1, {1: 1}))
        engine.outputs[1] = CUDA_OOM
        engine.gate.set()
        await end(controller)
        assert engine.reads == {0: 1, 1: 2, 2: 1}

    reason = play(live_job("a", gpus="1..3"), scenario)
    assert "the GPU ran out of memory (OOM)" in reason


def test_no_log_is_read_if_the_engine_knows_the_cause() -> None:
    async def scenario(controller: Controller, engine: LoggingEngine) -> None:
        engine.tell(WorkersExited(A, 1, {0: 137}, reason=OUT_OF_MEMORY))
        await end(controller)
        assert not engine.reads

    assert OUT_OF_MEMORY in play(job("a"), scenario)
