"""Where the daemon is: the one that was named, else the user's own, else the system's.

It is named by `--context`, by `ROTA_URL`, by `ROTA_CONTEXT`, or by `rota context use`; the first of
these counts. A variable `ROTA_HOME` names the daemon of that folder, before what `use` chose.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from rota.client import contexts
from rota.client.contexts import LOCAL
from rota.config import SOCKET_NAME, SYSTEM_STATE, state_dir
from rota.errors import UnavailableError, UserError, shown


class NoDaemonError(UnavailableError):
    """Nobody answers."""

    code = "no_daemon"


asked_for: ContextVar[str] = ContextVar("asked_for", default="")
"""The context that the command line asks for, if it does."""


@dataclass(frozen=True, slots=True)
class Door:
    """A Unix socket, or a URL; and what to show there. `refuses` tells which addresses are not to
    be spoken to, whatever name led there."""

    socket: str = ""
    url: str = ""
    token: str = field(default="", repr=False)
    refuses: Callable[[str], bool] | None = None

    def __str__(self) -> str:
        return self.socket or self.url


@dataclass(frozen=True, slots=True)
class Choice:
    """Which daemon is meant: a context by its name, or a URL; and what says so."""

    origin: str
    context: str = ""
    url: str = ""


def chosen() -> Choice:
    if name := asked_for.get():
        return Choice("--context", name)
    if url := os.environ.get("ROTA_URL", ""):
        return Choice("ROTA_URL", url=url)
    if name := os.environ.get("ROTA_CONTEXT", ""):
        return Choice("ROTA_CONTEXT", name)
    if os.environ.get("ROTA_HOME"):
        return Choice("ROTA_HOME", LOCAL)
    if name := contexts.read().current:
        return Choice("'rota context use'", name)
    return Choice("default", LOCAL)


def find() -> Door:
    """The door to try; whether somebody is behind it shows when it is tried."""
    choice = chosen()
    return parse(choice.url) if choice.url else door_of(choice.context)


def door_of(name: str) -> Door:
    """Of a context. A token in `ROTA_TOKEN` is for one that has none, unless it came with an
    address of its own: then it is nobody else's business."""
    spare = "" if os.environ.get("ROTA_URL") else os.environ.get("ROTA_TOKEN", "")
    if name == LOCAL:
        return Door(socket=_local_socket(), token=spare)
    context = contexts.read().get(name)
    found = parse(context.url)
    return Door(found.socket, found.url, token=context.secret() or spare)


def _local_socket() -> str:
    own = state_dir() / SOCKET_NAME
    system = SYSTEM_STATE / SOCKET_NAME
    is_own = bool(os.environ.get("ROTA_HOME")) or own.exists() or not system.exists()
    return str(own if is_own else system)


def parse(text: str, what: str = "ROTA_URL") -> Door:
    """A word of the user's, with the token in `ROTA_TOKEN`."""
    token = os.environ.get("ROTA_TOKEN", "")
    if text.startswith("unix:"):
        path = Path(text.removeprefix("unix://").removeprefix("unix:"))
        return Door(socket=str(path), token=token)
    if text.startswith(("http://", "https://")):
        return Door(url=text.removesuffix("/"), token=token)
    raise UserError(f"{what} is '{shown(text)}'", "write http://HOST:PORT or unix:///PATH")
