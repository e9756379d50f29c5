"""Where the daemon is: `ROTA_URL`, else the user's own, else the system's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rota.config import SOCKET_NAME, SYSTEM_STATE, state_dir
from rota.errors import UnavailableError, UserError


class NoDaemonError(UnavailableError):
    """Nobody answers."""

    code = "no_daemon"


@dataclass(frozen=True, slots=True)
class Door:
    """A Unix socket, or a URL."""

    socket: str = ""
    url: str = ""

    def __str__(self) -> str:
        return self.socket or self.url


def find() -> Door:
    """The door to try; whether somebody is behind it shows when it is tried."""
    given = os.environ.get("ROTA_URL", "")
    if given:
        return parse(given)
    own = state_dir() / SOCKET_NAME
    system = SYSTEM_STATE / SOCKET_NAME
    if os.environ.get("ROTA_HOME") or own.exists() or not system.exists():
        return Door(socket=str(own))
    return Door(socket=str(system))


def parse(text: str) -> Door:
    if text.startswith("unix:"):
        return Door(socket=str(Path(text.removeprefix("unix://").removeprefix("unix:"))))
    if text.startswith(("http://", "https://")):
        return Door(url=text.rstrip("/"))
    raise UserError(f"ROTA_URL is '{text[:60]}'", "write http://HOST:PORT or unix:///PATH")
