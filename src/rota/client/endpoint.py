"""Find the daemon: the selected one, else the user's own, else the system daemon.

The first of these selects the daemon: `--context`, `ROTA_URL`, `ROTA_CONTEXT`, `ROTA_HOME` (the
daemon with this state directory), `rota context use`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path

from rota.config.paths import (
    LOCAL,
    SOCKET_NAME,
    STORE_NAME,
    SYSTEM_STATE,
    contexts_file,
    state_dir,
)
from rota.errors import UnavailableError, UserError, shown


class NoDaemonError(UnavailableError):
    """No daemon listens at the endpoint."""

    code = "no_daemon"


requested_context: ContextVar[str] = ContextVar("asked_for", default="")
"""The context of `--context`; empty without the flag."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The Unix socket or URL of a daemon, and the token for it.

    A URL `https://HOST:PORT#sha256=FINGERPRINT` means: trust exactly this certificate.
    `allows_plain_http`: send the token also to a `http://` URL, where the daemon cannot be
    verified. `refuses` returns whether the client must not connect to an IP address, whatever host
    name resolved to it.
    """

    socket: str = ""
    url: str = ""
    token: str = field(default="", repr=False)
    allows_plain_http: bool = False
    refuses: Callable[[str], bool] | None = None

    def __str__(self) -> str:
        return self.socket or self.url.partition("#")[0]


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
    return replace(
        found,
        token=context.secret() or spare,
        allows_plain_http=context.allows_plain_http or found.allows_plain_http,
    )


def _used_context() -> str:
    """The context that `rota context use` selected; empty if there is none."""
    if not contexts_file().exists():
        return ""
    # Imported here, because users of a single daemon have no contexts and commands must start fast.
    from rota.client import contexts  # noqa: PLC0415

    return contexts.read().current


def _local_socket() -> str:
    """The socket of the user's own daemon if it runs, else that of the machine's daemon, also if
    that one is down; on a machine without a daemon of its own, the user's."""
    own = state_dir() / SOCKET_NAME
    is_own = bool(os.environ.get("ROTA_HOME")) or own.exists() or not _has_system_daemon()
    return str(own if is_own else SYSTEM_STATE / SOCKET_NAME)


def _has_system_daemon() -> bool:
    """Whether this machine has a daemon for all users, running or not."""
    return (SYSTEM_STATE / SOCKET_NAME).exists() or (SYSTEM_STATE / STORE_NAME).exists()


def no_daemon(endpoint: Endpoint) -> NoDaemonError:
    """The error if no daemon listens at the endpoint."""
    if not endpoint.socket:
        return NoDaemonError(f"no daemon at {endpoint}", "check the address")
    if os.geteuid() != 0 and Path(endpoint.socket).parent == SYSTEM_STATE:
        return NoDaemonError(
            f"the daemon of this machine is down (no daemon at {endpoint})",
            "ask an administrator to start it with 'systemctl start rota'",
        )
    return NoDaemonError(f"no daemon at {endpoint}", "start one with 'rota up --detach'")


def parse(text: str, what: str = "ROTA_URL") -> Endpoint:
    """Parse a URL from the user; the token comes from `ROTA_TOKEN`. `what` names the source."""
    token = os.environ.get("ROTA_TOKEN", "")
    if text.startswith("unix:"):
        path = Path(text.removeprefix("unix://").removeprefix("unix:"))
        return Endpoint(socket=str(path), token=token)
    if text.startswith(("http://", "https://")):
        is_allowed = os.environ.get("ROTA_PLAIN_HTTP", "") == "true"
        return Endpoint(url=text.removesuffix("/"), token=token, allows_plain_http=is_allowed)
    raise UserError(
        f"{what}: invalid address '{shown(text)}'", "write https://HOST:PORT or unix:///PATH"
    )
