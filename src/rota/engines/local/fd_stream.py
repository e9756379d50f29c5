"""Asynchronous reads and writes on a file descriptor: a pipe, a terminal or a socket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

READ_BYTES = 64 * 1024


class FdStream:
    """Owns its file descriptor. At most one reader and one writer at a time."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._waiting: set[asyncio.Future[None]] = set()

    async def read(self) -> bytes:
        """Wait for data and return it; empty at the end."""
        loop = asyncio.get_running_loop()
        while self.fd >= 0:
            try:
                return os.read(self.fd, READ_BYTES)
            except BlockingIOError:
                await self._ready(loop.add_reader, loop.remove_reader)
            except OSError:
                # A terminal that no process has open any more, or a broken connection.
                return b""
        return b""

    async def write(self, chunk: bytes) -> None:
        """Write the whole chunk, or as much as the other side takes before it closes."""
        loop = asyncio.get_running_loop()
        rest = memoryview(chunk)
        while rest and self.fd >= 0:
            try:
                rest = rest[os.write(self.fd, rest) :]
            except BlockingIOError:
                await self._ready(loop.add_writer, loop.remove_writer)
            except OSError:
                return

    def close(self) -> None:
        if self.fd < 0:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.fd)
        loop.remove_writer(self.fd)
        os.close(self.fd)
        self.fd = -1
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def _ready(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        fd = self.fd
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not waiting.done():
                waiting.set_result(None)

        self._waiting.add(waiting)
        add(fd, wake)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)
            if self.fd == fd:
                remove(fd)
