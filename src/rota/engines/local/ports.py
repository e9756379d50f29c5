"""The port at which the workers of an attempt meet."""

from __future__ import annotations

import socket

from rota.engines.local.order import Order


def free() -> int:
    """One that nobody listens on now. The kernel hands out a different one each time, which keeps
    two attempts that start together apart."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def of(order: Order) -> int:
    """The port that an attempt was given before a restart of the daemon."""
    return int(order.env["MASTER_PORT"])
