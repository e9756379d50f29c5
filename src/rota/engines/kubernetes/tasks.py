"""Work that goes on beside others: each piece is kept an eye on, and ended with the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import structlog

from rota.errors import RotaError

log = structlog.get_logger()


Work = Coroutine[None, None, None]


class Tasks:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._fault: BaseException | None = None
        self._is_broken = asyncio.Event()

    def rely_on(self, work: Work) -> None:
        """What all else rests upon: without it, one would only seem to see."""
        self._begin(work).add_done_callback(self._missed)

    def rely_on_soon(self, deed: Callable[[], None]) -> None:
        async def work() -> None:
            deed()

        self.rely_on(work())

    async def broken(self) -> None:
        """Raises when something died that was relied upon: a bug, which does not pass by itself."""
        await self._is_broken.wait()
        what = f"a bug in rota ({type(self._fault).__name__}): it no longer sees the cluster"
        raise RotaError(what, "start it again, and report it") from self._fault

    def spawn(self, work: Work) -> None:
        self._begin(work)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Work) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _missed(self, task: asyncio.Task[None]) -> None:
        self._fault = self._fault or (None if task.cancelled() else task.exception())
        if self._fault is not None:
            self._is_broken.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("work on the cluster was given up", error=str(error), exc_info=error)
