"""Supervised background tasks, and isolation of errors.

Every background task is supervised. A critical task is one that the process cannot work without:
its failure stops the process. A spawned task serves one job or one request: its failure is logged
with labels that identify the job or request. `ErrorIsolation` keeps an error with one item of a
loop from the other items.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager

import structlog

from rota.errors import RotaError

log = structlog.get_logger()
MAX_LOGGED_ERRORS = 1000
TaskCoroutine = Coroutine[None, None, None]
FailureCallback = Callable[[BaseException], None]


def _ignore_failure(_: BaseException) -> None:
    pass


class Tasks:
    """A group of background tasks, which `close` cancels. `on_failure` is called when a critical
    task fails."""

    def __init__(self, on_failure: FailureCallback = _ignore_failure) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()
        self._fault: BaseException | None = None
        self._has_failed = asyncio.Event()
        self._is_closing = False

    def spawn_critical(self, work: TaskCoroutine) -> None:
        """Start a task that the process cannot work without."""
        self._start(work).add_done_callback(self._critical_ended)

    def call_critical(self, callback: Callable[[], None]) -> None:
        """Call a function as a critical task. Does nothing after `close`, because a timer may fire
        later."""

        async def work() -> None:
            callback()

        if not self._is_closing:
            self.spawn_critical(work())

    def spawn(self, work: TaskCoroutine, **labels: str) -> asyncio.Task[None]:
        """Start a task for one job or request. `labels` identify it in the log if the task
        fails."""
        task = self._start(work)
        task.add_done_callback(lambda done: self._spawned_ended(done, labels))
        return task

    async def wait_failed(self) -> BaseException:
        """Wait until a critical task fails, and return its error. The error is a bug and does not
        resolve itself."""
        await self._has_failed.wait()
        assert self._fault is not None
        return self._fault

    async def close(self) -> None:
        """Cancel all tasks and wait for them."""
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: TaskCoroutine) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(
            work, name=getattr(work, "__qualname__", None)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _critical_ended(self, task: asyncio.Task[None]) -> None:
        error = self._error_of(task)
        if error is not None:
            log.error("critical background task failed", task=task.get_name(), exc_info=error)
            if not self._is_closing:
                self._fault = self._fault or error
                self._has_failed.set()
                self._on_failure(error)

    def _spawned_ended(self, task: asyncio.Task[None], labels: dict[str, str]) -> None:
        error = self._error_of(task)
        if error is not None:
            log.error("background task failed", error=str(error), exc_info=error, **labels)

    def _error_of(self, task: asyncio.Task[None]) -> BaseException | None:
        """The error of a task, if any. A task that is cancelled with the future that it awaits
        counts as failed."""
        if task.cancelled():
            return (
                None
                if self._is_closing
                else asyncio.CancelledError("the awaited task was cancelled")
            )
        return task.exception()


class ErrorIsolation:
    """Keeps an error with one item of a loop from the other items.

    Logs the error with the event `what` and the item's labels: once, until the item raises another
    error or succeeds. Errors of the types `raises` concern all items and are raised to the caller.
    """

    def __init__(
        self, what: str, *, raises: type[Exception] | tuple[type[Exception], ...] = RotaError
    ) -> None:
        self._what = what
        self._raises = raises
        self._logged: dict[tuple[str, ...], str] = {}

    @contextmanager
    def of(self, **labels: str) -> Generator[None]:
        """Isolate the errors of one item. `labels` identify the item."""
        key = tuple(labels.values())
        try:
            yield
        except self._raises:
            raise
        except Exception as error:
            if self._logged.get(key) != repr(error):
                log.error(self._what, exc_info=error, **labels)
            if len(self._logged) >= MAX_LOGGED_ERRORS:
                self._logged.clear()
            self._logged[key] = repr(error)
        else:
            self._logged.pop(key, None)
