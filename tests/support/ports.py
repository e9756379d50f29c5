"""TCP ports for servers that a test starts later."""

from __future__ import annotations

import socket

_reservations: list[socket.socket] = []


def reserve_port() -> int:
    """Return a port that no other process gets until this process ends.

    A bound socket that never listens keeps the port: the kernel gives it to no connection, and only
    a server that sets SO_REUSEADDR can listen on it, also after a restart.
    """
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind(("", 0))
    _reservations.append(reservation)
    return int(reservation.getsockname()[1])
