"""The doors as sockets, and the wait until somebody stands behind them."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from rota.errors import UnavailableError


class Starts(Protocol):
    started: bool


async def started(front: Starts, running: asyncio.Future[None]) -> None:
    while not front.started:
        if running.done():
            running.result()
        await asyncio.sleep(0.005)


def unix_socket(path: Path) -> socket.socket:
    """Root's socket is open to all, and the kernel tells who comes; anybody else's is private."""
    with suppress(FileNotFoundError):
        path.unlink()
    door = socket.socket(socket.AF_UNIX)
    try:
        door.bind(str(path))
    except OSError as error:
        hint = "choose a shorter ROTA_HOME" if "too long" in str(error) else ""
        raise UnavailableError(f"{path}: {error.strerror or error}", hint) from None
    path.chmod(0o666 if os.geteuid() == 0 else 0o600)
    return door


def written(host: str, port: int) -> str:
    """As in a URL, where an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def tcp_socket(host: str, port: int) -> socket.socket:
    door = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((host, port))
    except OSError as error:
        what = f"cannot listen on {host}:{port}: {error.strerror or error}"
        raise UnavailableError(what, "choose another --listen") from None
    return door
