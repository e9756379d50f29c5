"""Runs the heavy part of a request in a thread: of each user one at a time, and at their cost.

Threads share the interpreter with the event loop, so a user with many such threads would slow down
all others. Who pays is known at the start of the request, and work in the middle of it finds that
in the context.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from time import thread_time
from typing import TypeVar

from rota.thread_pools import REQUESTS

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HeavyWork:
    """The heavy work of one user. `charge` takes the seconds of CPU time that a thread used."""

    lock: asyncio.Lock
    charge: Callable[[float], None]


_of_request: ContextVar[HeavyWork | None] = ContextVar("heavy_work", default=None)


def set_payer(work: HeavyWork) -> None:
    """The heavy work of this task, from here on, is that of one user."""
    _of_request.set(work)


async def run_heavy(call: Callable[[], T]) -> T:
    """Call a blocking function in a thread, after other heavy work of the same user."""
    payer = _of_request.get()
    if payer is None:
        return await REQUESTS.run(call)

    def measured() -> T:
        begun_s = thread_time()
        try:
            return call()
        finally:
            payer.charge(thread_time() - begun_s)

    async with payer.lock:
        return await REQUESTS.run(measured)
