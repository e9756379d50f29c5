"""Work that blocks for long, and that nobody waits for when the daemon ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """What it answers. Unlike `asyncio.to_thread`, it does not hold up the end of the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def answer(put: Callable[[], None]) -> None:
        # Whoever asked may be gone, and the loop with them.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if done.done() else put())

    def run() -> None:
        try:
            found = work()
        except Exception as error:  # noqa: BLE001 - it is raised again, where it is waited for
            failure = error
            answer(lambda: done.set_exception(failure))
        else:
            answer(lambda: done.set_result(found))

    threading.Thread(target=run, daemon=True).start()
    return await done
