"""Find the daemon: the selected one, else the user's own, else the system daemon.

The first of these selects the daemon: `--context`, `ROTA_URL`, `ROTA_CONTEXT`, `ROTA_HOME` (the
daemon with this state directory), `rota context use`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from rota.config.paths import LOCAL, SOCKET_NAME, SYSTEM_STATE, contexts_file, state_dir
from rota.errors import UnavailableError, UserError, shown


class NoDaemonError(UnavailableError):
    """No daemon listens at the endpoint."""

    code = "no_daemon"


requested_context: ContextVar[str] = ContextVar("asked_for", default="")
"""The context of `--context`; empty without the flag."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The Unix socket or URL of a daemon, and the token for it. `refuses` returns whether the
    client must not connect to an IP address, whatever host name resolved to it."""

    socket: str = ""
    url: str = ""
    token: str = field(default="", repr=False)
    refuses: Callable[[str], bool] | None = None

    def __str__(self) -> str:
        return self.socket or self.url


@dataclass(frozen=True, slots=True)
class EndpointChoice:
    """The selected daemon, as a context name or a URL, and the origin of the selection."""

    origin: str
    context: str = ""
    url: str = ""


def chosen() -> EndpointChoice:
    if name := requested_context.get():
        return EndpointChoice("--context", name)
    if url := os.environ.get("ROTA_URL", ""):
        return EndpointChoice("ROTA_URL", url=url)
    if name := os.environ.get("ROTA_CONTEXT", ""):
        return EndpointChoice("ROTA_CONTEXT", name)
    if os.environ.get("ROTA_HOME"):
        return EndpointChoice("ROTA_HOME", LOCAL)
    if name := _used_context():
        return EndpointChoice("'rota context use'", name)
    return EndpointChoice("default", LOCAL)


def find() -> Endpoint:
    """Return the endpoint of the selected daemon, without connecting to it."""
    choice = chosen()
    return parse(choice.url) if choice.url else endpoint_of(choice.context)


def endpoint_of(name: str) -> Endpoint:
    """Return the endpoint of a context. A context without a token uses `ROTA_TOKEN`, except if
    `ROTA_URL` is set: then the token belongs to that URL and must not go to another daemon."""
    spare = "" if os.environ.get("ROTA_URL") else os.environ.get("ROTA_TOKEN", "")
    if name == LOCAL:
        return Endpoint(socket=_local_socket(), token=spare)
    from rota.client import contexts  # noqa: PLC0415

    context = contexts.read().get(name)
    found = parse(context.url)
    return Endpoint(found.socket, found.url, token=context.secret() or spare)


def _used_context() -> str:
    """The context that `rota context use` selected; empty if there is none."""
    if not contexts_file().exists():
        return ""
    # Imported here, because users of a single daemon have no contexts and commands must start fast.
    from rota.client import contexts  # noqa: PLC0415

    return contexts.read().current


def _local_socket() -> str:
    own = state_dir() / SOCKET_NAME
    system = SYSTEM_STATE / SOCKET_NAME
    is_own = bool(os.environ.get("ROTA_HOME")) or own.exists() or not system.exists()
    return str(own if is_own else system)


def parse(text: str, what: str = "ROTA_URL") -> Endpoint:
    """Parse a URL from the user; the token comes from `ROTA_TOKEN`. `what` names the source."""
    token = os.environ.get("ROTA_TOKEN", "")
    if text.startswith("unix:"):
        path = Path(text.removeprefix("unix://").removeprefix("unix:"))
        return Endpoint(socket=str(path), token=token)
    if text.startswith(("http://", "https://")):
        return Endpoint(url=text.removesuffix("/"), token=token)
    raise UserError(
        f"{what}: invalid address '{shown(text)}'", "write http://HOST:PORT or unix:///PATH"
    )
