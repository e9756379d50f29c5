"""Bounded pools of threads, one for each kind of blocking work.

Work of one kind that hangs, such as the files of jobs on a network disk that does not answer, must
not use up the threads of another kind, such as decisions. `stuck_pools` names the pools in which a
call waits too long for a thread, for the health checks.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Delivery = Callable[[], None]
Call = Callable[[], Delivery]
"""Runs the work, and returns how to deliver its result."""
MAX_IDLE_THREADS = 4
"""Threads of one pool that wait for another call."""
STUCK_S = 60.0
"""A pool is stuck if a call waits for a thread for so long."""


class ThreadPool:
    """Daemon threads, which do not delay the end of the process."""

    def __init__(self, name: str, n_threads: int) -> None:
        self._name = name
        self._max_threads = n_threads
        self._forget_threads()
        _POOLS.append(self)
        os.register_at_fork(after_in_child=self._forget_threads)

    def _forget_threads(self) -> None:
        self._n_threads = 0
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Call]] = []
        """The queue of each thread that waits for another call."""
        self._waiting: deque[tuple[float, asyncio.Future[Any], Call]] = deque()
        """Calls that wait for a thread, each with its time and the future of its caller."""

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call in a thread and return its result."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        context = copy_context()

        def deliver(put: Callable[[], None]) -> None:
            # The caller may be gone, and the loop may be closed.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(lambda: None if done.done() else put())

        def call() -> Delivery:
            try:
                found = context.run(work, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - raised again in the caller
                failure = error
            except BaseException as error:  # noqa: BLE001 - such as KeyboardInterrupt of a policy
                failure = RuntimeError(f"a call in a thread raised {type(error).__name__}")
            else:
                return lambda: deliver(lambda: done.set_result(found))
            return lambda: deliver(lambda: done.set_exception(failure))

        self._start(call, done)
        return await done

    def stuck_s(self, now: float) -> float:
        """How long a call waits for a thread; 0 if none waits."""
        with self._lock:
            self._drop_abandoned()
            return now - self._waiting[0][0] if self._waiting else 0.0

    def describe(self) -> str:
        return f"all {self._max_threads} threads for {self._name} are busy"

    def _start(self, call: Call, done: asyncio.Future[Any]) -> None:
        with self._lock:
            if self._idle:
                self._idle.pop().put(call)
                return
            if self._n_threads == self._max_threads:
                self._waiting.append((time.monotonic(), done, call))
                return
            self._n_threads += 1
        try:
            own: SimpleQueue[Call] = SimpleQueue()
            # Arguments of a thread live as long as the thread, and a call holds large values.
            own.put(call)
            threading.Thread(target=self._run_calls, args=(own,), daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._n_threads -= 1
            raise OSError(errno.EAGAIN, "the machine cannot start another thread") from None

    def _run_calls(self, own: SimpleQueue[Call]) -> None:
        """Run the call in the queue, then others as they come, unless enough threads wait for
        one."""
        call: Call | None = own.get()
        while call is not None:
            deliver = call()
            del call  # It holds the arguments.
            call, is_idle = self._next(own)
            # The thread is known as idle before the caller has the result, so that the caller's
            # next call finds it.
            deliver()
            del deliver  # It holds the result.
            if is_idle:
                call = own.get()

    def _next(self, own: SimpleQueue[Call]) -> tuple[Call | None, bool]:
        """The next waiting call, if any, and whether the thread waits for another one."""
        with self._lock:
            self._drop_abandoned()
            if self._waiting:
                return self._waiting.popleft()[2], False
            if len(self._idle) < MAX_IDLE_THREADS:
                self._idle.append(own)
                return None, True
            self._n_threads -= 1
            return None, False

    def _drop_abandoned(self) -> None:
        """Forget waiting calls whose callers have given up."""
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()


_POOLS: list[ThreadPool] = []

DECISIONS = ThreadPool("scheduling decisions", 2)
FORECASTS = ThreadPool("forecasts", 2)
STORE = ThreadPool("the store", 8)
EVENT_STREAMS = ThreadPool("event streams", 2)
"""Few: after each change each stream reads the store, and other requests must not wait for that."""
DEVICES = ThreadPool("the GPU driver", 2)
JOB_FILES = ThreadPool("files of jobs", 64)
"""The starts of one user are limited to a part of these threads."""
LOGS = ThreadPool("reading logs", 4)
DIAGNOSIS = ThreadPool("the diagnosis of logs", 4)
TRANSFERS = ThreadPool("uploads and downloads", 16)
SESSIONS = ThreadPool("exec sessions", 16)
CLEAN_UP = ThreadPool("clean-up", 16)
REQUESTS = ThreadPool("the heavy parts of requests", 8)
OTHER_SYSTEMS = ThreadPool("requests to other systems", 8)


def stuck_pools() -> list[str]:
    """A sentence about each pool that does not drain."""
    now = time.monotonic()
    return [
        f"{pool.describe()}, and a call has waited for {waited_s:.0f} s"
        for pool in _POOLS
        if (waited_s := pool.stuck_s(now)) >= STUCK_S
    ]
