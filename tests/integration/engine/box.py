"""One machine to try the local engine on: an engine over a folder, and all that it reported."""

import asyncio
import functools
import inspect
import os
import select
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rota.core.commands import ReportWorkers, StartWorkers, StopWorkers
from rota.core.events import Event, WorkersExited, WorkersLost, WorkersStarted
from rota.core.model import GIB, JobId, NodeId, Slot
from rota.engines.base import LogQuery, Program, WorkerId
from rota.engines.local import files, procs
from rota.engines.local.engine import LocalEngine
from rota.engines.local.folders import Folders
from rota.engines.local.gpus import Gpus, VirtualGpus
from rota.engines.local.order import Ending, Fence
from tests.patience import PATIENCE_S

NODE = NodeId("here")


class Box:
    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self.root = root
        self.folders = Folders(root)
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
        """What a daemon that dies leaves behind is taken up by the next."""
        await self.engine.close()
        self.facts.clear()
        self.engine = LocalEngine(self.root, gpus or VirtualGpus(4, 16 * GIB))
        await self.engine.start(self._hear)

    async def adopt(self) -> set[str]:
        """The jobs that still run."""
        return {worker.job_id for worker in await self.engine.adopt()}

    async def report(self, *job_ids: str) -> None:
        """As the kernel asks after a restart."""
        for job_id in job_ids:
            await self.engine.apply(ReportWorkers(JobId(job_id), 1, (0,)))

    # -- orders ---------------------------------------------------------------------------------

    async def start(self, job_id: str, program: Program, **order: Any) -> None:
        slots = tuple(Slot(NODE, (index,)) for index in range(order.get("workers", 1)))
        command = StartWorkers(JobId(job_id), order.get("attempt", 1), 0, slots)
        await self.engine.apply(command, program)

    async def stop(
        self, job_id: str, *, attempt: int = 1, workers: int = 1, grace_s: float = 60.0
    ) -> None:
        await self.engine.apply(StopWorkers(JobId(job_id), attempt, tuple(range(workers)), grace_s))

    async def run(self, job_id: str, program: Program) -> Ending:
        await self.start(job_id, program)
        await self.end_of(job_id)
        return self.ending(job_id)

    def ending(self, job_id: str) -> Ending:
        """How its only worker ended, as it is on the disk."""
        found = self.folders.ending(Fence(JobId(job_id), 1, 0))
        assert found is not None
        return found

    async def run_until_it_says(self, job_id: str, word: str, program: Program) -> None:
        await self.start(job_id, program)
        await self.says(job_id, word)

    # -- what happens ---------------------------------------------------------------------------

    async def until(self, is_it: Callable[[Event], bool]) -> Event:
        """The first fact of this kind, past or to come."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for fact in self.facts:
                    if is_it(fact):
                        return fact
                self._news.clear()
                await self._news.wait()

    async def end_of(self, job_id: str, *, attempt: int = 1, worker: int = 0) -> int:
        """The exit code; -1 if the worker was lost."""

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

    async def words_of(self, job_id: str) -> str:
        """The reason that was reported with the end."""
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
        """All that the worker wrote up to this word."""
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

    def keeper_pid(self, job_id: str) -> int:
        keeper = self.folders.keeper(Fence(job_id, 1, 0))
        assert keeper is not None
        return keeper.pid

    def processes(self, job_id: str, *, worker: int = 0) -> procs.Found:
        order = self.folders.order(Fence(job_id, 1, worker))
        return {} if order is None else procs.marked(order.marker)

    def place(self, job_id: str) -> Path:
        return self.folders.worker(Fence(job_id, 1, 0))

    def keeper_notes(self, job_id: str) -> list[str]:
        record = files.read_json(f"{self.place(job_id)}/{files.KEEPER}")
        assert record is not None
        return record["notes"]


def sh(script: str, **program: Any) -> Program:
    return Program(("/bin/sh", "-c", script), **program)


def on_a_box(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs `async def test(box, ...)` as a test that pytest understands."""
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
    """Until this process is gone, however long its parent takes to notice."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(pidfd):
        assert select.select([pidfd], [], [], PATIENCE_S)[0], f"process {pid} goes on"


def seconds_of(start: float) -> float:
    return time.monotonic() - start
