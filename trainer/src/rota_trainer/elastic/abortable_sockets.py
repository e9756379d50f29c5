"""The connections of a process group, found from outside.

A collective of gloo that waits for a peer cannot be ended by any call of torch. It ends when its
connection does; and torch does not tell which connections are its own, so they are found by what
was opened meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import socket
import weakref
from collections.abc import Callable

ESTABLISHED = 1


class Connections:
    """Duplicates of the descriptors of a group's connections, good to end them at any time."""

    def __init__(self, found: list[tuple[int, socket.socket]]) -> None:
        self._found = found
        _all.add(self)

    def end(self) -> None:
        """Whoever waits on one of them fails at once, here and at the other end."""
        for _, duplicate in self._found:
            with contextlib.suppress(OSError):
                duplicate.shutdown(socket.SHUT_RDWR)

    def are_sound(self) -> bool:
        return all(_is_established(duplicate) for _, duplicate in self._found)

    def close(self) -> None:
        self.end()
        for _, duplicate in self._found:
            duplicate.close()
        self._found = []

    def close_in_forked_child(self) -> None:
        """A child that loads data would keep a dead parent's connections open."""
        for number, duplicate in self._found:
            with contextlib.suppress(OSError):
                if os.fstat(number).st_ino == os.fstat(duplicate.fileno()).st_ino:
                    os.close(number)
            duplicate.close()
        self._found = []


def open_sockets() -> dict[int, str]:
    """The sockets of this process: descriptor and identity."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:"):
                found[int(name)] = target
    return found


def opened_since(before: dict[int, str], *, belongs: Callable[[int, int], bool]) -> Connections:
    """Connections over TCP that are new and belong, by the ports of this end and of the other."""
    new = [number for number, target in open_sockets().items() if before.get(number) != target]
    found: list[tuple[int, socket.socket]] = []
    for number in new:
        with contextlib.suppress(OSError):
            duplicate = socket.socket(fileno=os.dup(number))
            if belongs(*_ports(duplicate)) and _is_established(duplicate):
                found.append((number, duplicate))
            else:
                duplicate.close()
    return Connections(found)


def _ports(connection: socket.socket) -> tuple[int, int]:
    """Of this end and of the other. Raises OSError for one that listens."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        raise OSError("not TCP")
    return int(connection.getsockname()[1]), int(connection.getpeername()[1])


def _is_established(connection: socket.socket) -> bool:
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED
    except OSError:
        return False


_all: weakref.WeakSet[Connections] = weakref.WeakSet()


def _after_fork() -> None:
    for connections in list(_all):
        connections.close_in_forked_child()


os.register_at_fork(after_in_child=_after_fork)
