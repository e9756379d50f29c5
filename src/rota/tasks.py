"""Work that goes on beside other work, and what a bug in it means.

What all else rests upon is relied on: without it one would only seem to work, and whoever asks is
told. What is for one job or one request is spawned: a bug in it is told with whose it is. Where
many are looked after in turn, a bug with one of them is kept apart from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager

import structlog

from rota.errors import RotaError

log = structlog.get_logger()

MOST_TOLD = 1000

Work = Coroutine[None, None, None]
Missed = Callable[[BaseException], None]


def _nobody_is_told(_: BaseException) -> None:
    pass


class Tasks:
    """All of it ends with `close`. `missed` hears what became of work that was relied upon."""

    def __init__(self, missed: Missed = _nobody_is_told) -> None:
        self._missed = missed
        self._tasks: set[asyncio.Task[None]] = set()
        self._fault: BaseException | None = None
        self._is_broken = asyncio.Event()
        self._is_closing = False

    def rely_on(self, work: Work) -> None:
        self._begin(work).add_done_callback(self._relied_ended)

    def rely_on_soon(self, deed: Callable[[], None]) -> None:
        """Not any more once it closes: a timer may ring after that."""

        async def work() -> None:
            deed()

        if not self._is_closing:
            self.rely_on(work())

    def spawn(self, work: Work, **whose: str) -> asyncio.Task[None]:
        task = self._begin(work)
        task.add_done_callback(lambda done: self._spawned_ended(done, whose))
        return task

    async def broken(self) -> BaseException:
        """Returns when something died that was relied upon: a bug, which does not pass by
        itself."""
        await self._is_broken.wait()
        assert self._fault is not None
        return self._fault

    async def close(self) -> None:
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Work) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _relied_ended(self, task: asyncio.Task[None]) -> None:
        error = self._fault_of(task)
        if error is not None:
            log.error("something died that all else rests upon", exc_info=error)
            if not self._is_closing:
                self._fault = self._fault or error
                self._is_broken.set()
                self._missed(error)

    def _spawned_ended(self, task: asyncio.Task[None], whose: dict[str, str]) -> None:
        error = self._fault_of(task)
        if error is not None:
            log.error("work was given up", error=str(error), exc_info=error, **whose)

    def _fault_of(self, task: asyncio.Task[None]) -> BaseException | None:
        """Whoever waits for something that is cancelled is cancelled with it, although nobody
        meant to end it."""
        if task.cancelled():
            return None if self._is_closing else asyncio.CancelledError("what it waited for ended")
        return task.exception()


class Bugs:
    """Each is told once, as `what` and whose it is, until it is another or over. What rota says in
    words of its own is no bug, and goes on to whoever waits."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._told: dict[tuple[str, ...], str] = {}

    @contextmanager
    def of(self, **whose: str) -> Generator[None]:
        key = tuple(whose.values())
        try:
            yield
        except RotaError:
            raise
        except Exception as error:
            if self._told.get(key) != repr(error):
                log.error(self._what, exc_info=error, **whose)
            if len(self._told) >= MOST_TOLD:
                self._told.clear()
            self._told[key] = repr(error)
        else:
            self._told.pop(key, None)
