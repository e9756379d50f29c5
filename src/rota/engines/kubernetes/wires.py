"""The sockets beneath a client's connections, so that its end can be waited for.

To close an encrypted connection takes an answer of the other side, which the client does not wait
for: whoever ended the event loop right after would leave sockets behind.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any
from weakref import WeakSet

LOOK_AGAIN_S = 0.005
PATIENCE_S = 2.0

Address = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]


class Wires:
    """Called, it makes a socket; as the client's factory of them it knows them all."""

    def __init__(self) -> None:
        self._made: WeakSet[socket.socket] = WeakSet()

    def __call__(self, address: Address) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self._made.add(made)
        return made

    async def cut(self) -> None:
        """Those that are still there: nobody waits for what the other side says. Returns when
        their owner, the event loop, has let go of them."""
        for each in self._open():
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while self._open():  # noqa: ASYNC110 - the loop tells nobody
                    await asyncio.sleep(LOOK_AGAIN_S)

    def _open(self) -> list[socket.socket]:
        return [each for each in self._made if each.fileno() >= 0]
