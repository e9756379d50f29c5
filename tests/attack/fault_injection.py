"""Raises an exception at the n-th await or system call in the work for one job.

The work for a job is what runs in a task whose local variables name the job, in the tasks and
threads that such a task starts, and every system call with a path of the job. The system calls are
those that Python reports to audit hooks. A hook cannot be removed, so there is one for all tests.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

SYSTEM_CALLS = ("open", "os.", "fcntl.", "socket.", "subprocess.", "shutil.")
_in_work_for: ContextVar[str] = ContextVar("in_work_for", default="")


class FaultInjector:
    """Counts the points of the job `target`, and raises an error at point number `at`."""

    def __init__(self) -> None:
        self.target = ""
        self.n_points = 0
        self.at = 0
        self._error: Callable[[], Exception] = RuntimeError
        self.hit = ""
        """The point at which the error was raised."""

    @contextmanager
    def aimed(self, job_id: str, *, at: int, error: Callable[[], Exception]) -> Generator[None]:
        self.target, self.n_points, self.at = job_id, 0, at
        self._error, self.hit = error, ""
        try:
            yield
        finally:
            self.target = ""

    def pass_point(self, what: str) -> None:
        self.n_points += 1
        if self.n_points == self.at:
            self.hit = what
            raise self._error()

    def on_system_call(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.target or not event.startswith(SYSTEM_CALLS):
            return
        is_path = any(isinstance(each, str) and self.target in each for each in arguments)
        if is_path or _in_work_for.get() == self.target:
            self.pass_point(f"{event} {arguments[:1]}")

    def make_task(
        self, loop: asyncio.AbstractEventLoop, work: Any, **more: Any
    ) -> asyncio.Task[Any]:
        if self.target and _names(work, self.target):
            work = _InterruptedWork(work, self)
        return asyncio.Task(work, loop=loop, **more)


INJECTOR = FaultInjector()
sys.addaudithook(INJECTOR.on_system_call)


class _InterruptedWork(Coroutine[Any, Any, Any]):
    """A coroutine that raises where it awaits. It begins before the first of these points."""

    def __init__(self, work: Coroutine[Any, Any, Any], injector: FaultInjector) -> None:
        self._work, self._injector = work, injector
        self._target = injector.target
        self._has_begun = False

    def send(self, value: Any) -> Any:
        _in_work_for.set(self._target)
        if self._has_begun and self._injector.target == self._target:
            try:
                self._injector.pass_point(f"await in {self._work.__qualname__}")
            except Exception as error:  # noqa: BLE001 - raised in the work
                return self._work.throw(error)
        self._has_begun = True
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError


def _names(work: Any, job_id: str) -> bool:
    """Whether a coroutine is work for the job: its parameters name the job."""
    if _in_work_for.get() == job_id:
        return True
    frame = getattr(work, "cr_frame", None)
    values = frame.f_locals.values() if frame is not None else ()
    return any(_is_of(each, job_id) for each in values)


def _is_of(value: object, job_id: str) -> bool:
    if isinstance(value, tuple) and value:
        value = value[0]
    return job_id in (value, getattr(value, "job_id", None))
