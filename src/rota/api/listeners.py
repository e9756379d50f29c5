"""The listening sockets of the daemon, and the wait until its HTTP server has started."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from rota.errors import UnavailableError


class StartableServer(Protocol):
    started: bool


async def wait_until_started(server: StartableServer, running: asyncio.Future[None]) -> None:
    """Raises if the server ends before it has started."""
    while not server.started:
        if running.done():
            running.result()
        await asyncio.sleep(0.005)


def unix_socket(path: Path) -> socket.socket:
    """All users may connect to the socket of root: the kernel reports their user ids. The socket of
    any other user is private."""
    with suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
    except OSError as error:
        hint = "choose a shorter ROTA_HOME" if "too long" in str(error) else ""
        raise UnavailableError(f"{path}: {error.strerror or error}", hint) from None
    path.chmod(0o666 if os.geteuid() == 0 else 0o600)
    return listener


def format_address(host: str, port: int) -> str:
    """As in a URL: an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def tcp_socket(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        what = f"cannot listen on {host}:{port}: {error.strerror or error}"
        raise UnavailableError(what, "choose another --listen") from None
    return listener
