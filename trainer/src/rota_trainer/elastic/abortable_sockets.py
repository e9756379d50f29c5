"""Finds the TCP connections of a process group, so that another thread can abort its collectives.

torch has no call that ends a gloo collective which waits for a peer. The collective ends when its
connection is shut down. torch does not expose its connections either, so they are found by
comparing the open sockets of the process before and after the group was opened.
"""

from __future__ import annotations

import contextlib
import os
import socket
import weakref
from collections.abc import Callable

ESTABLISHED = 1


class AbortableSockets:
    """Duplicated descriptors of the connections, which stay usable whatever torch closes."""

    def __init__(self, found: list[tuple[int, socket.socket]]) -> None:
        self._found = found
        _all.add(self)

    def shut_down(self) -> None:
        """Shut down all connections: every wait on them fails, here and in the peers."""
        for _, duplicate in self._found:
            with contextlib.suppress(OSError):
                duplicate.shutdown(socket.SHUT_RDWR)

    def are_established(self) -> bool:
        return all(_is_established(duplicate) for _, duplicate in self._found)

    def close(self) -> None:
        self.shut_down()
        for _, duplicate in self._found:
            duplicate.close()
        self._found = []

    def close_in_forked_child(self) -> None:
        """Close the connections in a forked child (such as a data loader), which would otherwise
        keep them open after the parent has died."""
        for number, duplicate in self._found:
            with contextlib.suppress(OSError):
                if os.fstat(number).st_ino == os.fstat(duplicate.fileno()).st_ino:
                    os.close(number)
            duplicate.close()
        self._found = []


def open_sockets() -> dict[int, str]:
    """The open sockets of this process: descriptor -> identity (`socket:[INODE]`)."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:"):
                found[int(name)] = target
    return found


def opened_since(
    before: dict[int, str], *, belongs: Callable[[int, int], bool]
) -> AbortableSockets:
    """The TCP connections that are new since `before` and for which `belongs(local port, remote
    port)` is true."""
    new = [number for number, target in open_sockets().items() if before.get(number) != target]
    found: list[tuple[int, socket.socket]] = []
    for number in new:
        with contextlib.suppress(OSError):
            duplicate = socket.socket(fileno=os.dup(number))
            if belongs(*_ports(duplicate)) and _is_established(duplicate):
                found.append((number, duplicate))
            else:
                duplicate.close()
    return AbortableSockets(found)


def _ports(connection: socket.socket) -> tuple[int, int]:
    """The local and the remote port. Raises OSError for a listening socket."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        raise OSError("not TCP")
    return int(connection.getsockname()[1]), int(connection.getpeername()[1])


def _is_established(connection: socket.socket) -> bool:
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED
    except OSError:
        return False


_all: weakref.WeakSet[AbortableSockets] = weakref.WeakSet()


def _after_fork() -> None:
    for connections in list(_all):
        connections.close_in_forked_child()


os.register_at_fork(after_in_child=_after_fork)
