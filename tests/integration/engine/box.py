"""A test harness for the local engine: an engine on a directory, and all its events."""

import asyncio
import functools
import inspect
import os
import select
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rota.core.model.allocation import Slot
from rota.core.model.commands import ReportWorkers, StartWorkers, StopWorkers
from rota.core.model.events import Event, WorkersExited, WorkersLost, WorkersStarted
from rota.core.model.job import JobId
from rota.core.model.node import NodeId
from rota.core.model.units import GIB
from rota.engines.interface import LogQuery, Program, WorkerId
from rota.engines.local.engine import LocalEngine
from rota.engines.local.gpus import Gpus, VirtualGpus
from rota.engines.local.supervisor import proc, state_files
from rota.engines.local.supervisor.records import ExitRecord, WorkerKey
from rota.engines.local.worker_dirs import WorkerDirs
from tests.support.timeouts import PATIENCE_S

NODE = NodeId("here")


class Box:
    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self.root = root
        self.folders = WorkerDirs(root)
        self.facts: list[Event] = []
        self._news = asyncio.Event()
        self.engine = LocalEngine(root, VirtualGpus(4, 16 * GIB))

    async def __aenter__(self) -> "Box":
        await self.engine.start(self._hear)
        return self

    async def __aexit__(self, *_: object) -> None:
        for fence in self.folders.live():
            await self.stop(fence.job_id, attempt=fence.attempt, grace_s=0.0)
            await self.end_of(fence.job_id, attempt=fence.attempt, worker=fence.worker)
        await self.engine.close()

    def _hear(self, fact: Event) -> None:
        self.facts.append(fact)
        self._news.set()

    async def restart(self, gpus: Gpus | None = None) -> None:
        """Simulate the crash and restart of the daemon."""
        await self.engine.close()
        self.facts.clear()
        self.engine = LocalEngine(self.root, gpus or VirtualGpus(4, 16 * GIB))
        await self.engine.start(self._hear)

    async def adopt(self) -> set[str]:
        """Adopt running workers; return their jobs."""
        return {worker.job_id for worker in await self.engine.adopt()}

    async def report(self, *job_ids: str) -> None:
        """Send `ReportWorkers`, as the kernel does after a restart."""
        for job_id in job_ids:
            await self.engine.apply(ReportWorkers(JobId(job_id), 1, (0,)))

    # -- commands -------------------------------------------------------------------------------

    async def start(self, job_id: str, program: Program, **order: Any) -> None:
        slots = tuple(Slot(NODE, (index,)) for index in range(order.get("workers", 1)))
        command = StartWorkers(JobId(job_id), order.get("attempt", 1), 0, slots)
        await self.engine.apply(command, program)

    async def stop(
        self, job_id: str, *, attempt: int = 1, workers: int = 1, grace_s: float = 60.0
    ) -> None:
        await self.engine.apply(StopWorkers(JobId(job_id), attempt, tuple(range(workers)), grace_s))

    async def run(self, job_id: str, program: Program) -> ExitRecord:
        await self.start(job_id, program)
        await self.end_of(job_id)
        return self.ending(job_id)

    def ending(self, job_id: str) -> ExitRecord:
        """The exit record of the only worker, from disk."""
        found = self.folders.exit_record(WorkerKey(JobId(job_id), 1, 0))
        assert found is not None
        return found

    async def run_until_output(self, job_id: str, word: str, program: Program) -> None:
        """Wait for the report of the start, too: commands beside the worker run from then on."""
        await self.start(job_id, program)
        await self.says(job_id, word)
        await self.until(lambda fact: isinstance(fact, WorkersStarted) and fact.job_id == job_id)

    # -- events ---------------------------------------------------------------------------------

    async def until(self, is_it: Callable[[Event], bool]) -> Event:
        """Wait for the first event of this kind, past or future."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for fact in self.facts:
                    if is_it(fact):
                        return fact
                self._news.clear()
                await self._news.wait()

    async def end_of(self, job_id: str, *, attempt: int = 1, worker: int = 0) -> int:
        """Wait for the exit code; -1 if the worker was lost."""

        def is_it(fact: Event) -> bool:
            match fact:
                case WorkersExited():
                    gone = fact.codes
                case WorkersLost():
                    gone = fact.workers
                case _:
                    return False
            return (fact.job_id, fact.attempt) == (job_id, attempt) and worker in gone

        fact = await self.until(is_it)
        return fact.codes[worker] if isinstance(fact, WorkersExited) else -1

    async def reason_of(self, job_id: str) -> str:
        """Wait for the end and return its reason."""
        kinds = (WorkersExited, WorkersLost)
        fact = await self.until(lambda fact: isinstance(fact, kinds) and fact.job_id == job_id)
        assert isinstance(fact, kinds)
        return fact.reason

    async def start_of(self, job_id: str, *, worker: int = 0) -> None:
        await self.until(
            lambda fact: (
                isinstance(fact, WorkersStarted)
                and fact.job_id == job_id
                and worker in fact.workers
            )
        )

    async def says(self, job_id: str, word: str, *, worker: int = 0) -> str:
        """Wait until the worker has written this text; return all its output so far."""
        await self.start_of(job_id, worker=worker)
        output = ""
        async with asyncio.timeout(PATIENCE_S):
            query = LogQuery(follow=True)
            async for chunk in self.engine.logs(WorkerId(JobId(job_id), 1, worker), query):
                output += chunk.output.decode()
                if word in output:
                    return output
        raise AssertionError(f"{word!r} never came: {output!r}")

    async def output(self, job_id: str, query: LogQuery | None = None, *, worker: int = 0) -> bytes:
        found = self.engine.logs(WorkerId(JobId(job_id), 1, worker), query or LogQuery())
        return b"".join([chunk.output async for chunk in found])

    # -- processes ------------------------------------------------------------------------------

    def supervisor_pid(self, job_id: str) -> int:
        keeper = self.folders.supervisor(WorkerKey(job_id, 1, 0))
        assert keeper is not None
        return keeper.pid

    def processes(self, job_id: str, *, worker: int = 0) -> proc.ProcessTable:
        order = self.folders.spec(WorkerKey(job_id, 1, worker))
        return {} if order is None else proc.with_marker(order.marker)

    def place(self, job_id: str) -> Path:
        return self.folders.worker(WorkerKey(job_id, 1, 0))

    def supervisor_notes(self, job_id: str) -> list[str]:
        record = state_files.read_json(f"{self.place(job_id)}/{state_files.SUPERVISOR_FILE}")
        assert record is not None
        return record["notes"]


def sh(script: str, **program: Any) -> Program:
    return Program(("/bin/sh", "-c", script), **program)


def on_a_box(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Turn `async def test(box, ...)` into a pytest test."""
    parameters = list(inspect.signature(test).parameters.values())[1:]
    tmp_path = inspect.Parameter("tmp_path", inspect.Parameter.KEYWORD_ONLY)

    @functools.wraps(test)
    def run(*, tmp_path: Path, **arguments: Any) -> None:
        async def scenario() -> None:
            async with Box(tmp_path / "engine") as box:
                await test(box, **arguments)

        asyncio.run(scenario())

    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    run.__signature__ = inspect.Signature([*keywords, tmp_path])  # pyright: ignore[reportAttributeAccessIssue]
    del run.__wrapped__  # pyright: ignore[reportAttributeAccessIssue]
    return run


def wait_for_end(pid: int) -> None:
    """Wait until this process has ended, reaped or not."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(pidfd):
        assert select.select([pidfd], [], [], PATIENCE_S)[0], f"process {pid} goes on"


def seconds_of(start: float) -> float:
    return time.monotonic() - start
