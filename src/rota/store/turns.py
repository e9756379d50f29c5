"""Many jobs at once, and each of them by one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterable
from contextlib import asynccontextmanager

from rota.core.model import JobId


async def all_of(works: Iterable[Awaitable[object]]) -> None:
    """Waits for every one of them, whatever becomes of the others; then fails if one did."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


class Turns:
    def __init__(self) -> None:
        self._busy: dict[JobId, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def of(self, job_id: JobId) -> AsyncGenerator[None]:
        while before := self._busy.get(job_id):
            await asyncio.wait((before,))
        self._busy[job_id] = done = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._busy[job_id]
            done.set_result(None)
