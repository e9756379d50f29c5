"""Room for so many at once; whoever can wait is told when nobody else does."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Room:
    def __init__(self, n_places: int) -> None:
        self._places = asyncio.Semaphore(n_places)
        self._n_waiting = 0
        self._is_quiet = asyncio.Event()
        self._is_quiet.set()

    async def __aenter__(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        self._n_waiting += 1
        self._is_quiet.clear()
        try:
            await self._places.acquire()
        finally:
            self._n_waiting -= 1
            if not self._n_waiting:
                self._is_quiet.set()

    async def __aexit__(self, *_: object) -> None:
        self._places.release()

    async def lull(self, *, most_s: float) -> None:
        """Until nobody waits for a place, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._is_quiet.wait()
