"""Move requests: validation of the target, limits, and the record of a move.

A user who names a target makes this daemon connect to it, so the address is restricted.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from rota.core.model.job import JobId
from rota.core.model.units import MAX_SECONDS, parse_seconds
from rota.daemon.access.authorization import Caller, require_move_target, require_write
from rota.daemon.errors import RefusedError
from rota.errors import UserError, shown
from rota.wire.moves import MoveRequest

MOST_MOVES = 10_000
"""The limit of planned moves of one user."""
LONGEST_TOKEN = 16 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_TOKEN = re.compile(r"[!-~]*", re.ASCII)
WAITS, GOES, SENT = "waits", "goes", "sent"
"""The steps of a move: not yet due; held here, to be sent; accepted and held at the target."""


@dataclass(frozen=True, slots=True)
class MigrationTarget:
    """Another daemon: the user's name for it, its address and the user's token there. The fragment
    of a https URL is the fingerprint of its certificate."""

    to: str
    url: str
    token: str = field(default="", repr=False)
    allows_plain_http: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """A planned or running move. Stored in the journal under these field names."""

    job_id: JobId
    user: str
    target: MigrationTarget
    due_s: float
    step: str = WAITS
    sent_as: str = ""
    """The id of the job at the target."""


class MoveJournal(Protocol):
    """Stores moves durably: every call returns after the change is on disk."""

    async def load(self) -> list[Move]: ...

    async def save(self, *moves: Move) -> None: ...

    async def forget(self, job_id: JobId) -> None: ...


@dataclass(frozen=True, slots=True)
class MigrationLimits:
    """`targets` are the allowed addresses; empty allows any. `patience_s` is how long a target may
    be unreachable before the move is given up."""

    targets: tuple[str, ...] = ()
    patience_s: float = 60.0


DEFAULT_MIGRATION_LIMITS = MigrationLimits()


def validate_move(
    caller: Caller, request: MoveRequest, *, limits: MigrationLimits
) -> tuple[MigrationTarget, float]:
    """The target, and the time to wait before the move. Error messages never contain the token."""
    require_write(caller)
    if not _NAME.fullmatch(request.to):
        raise RefusedError("to", f"'{shown(request.to)}' is not a valid context name")
    if len(request.token) > LONGEST_TOKEN or not _TOKEN.fullmatch(request.token):
        raise RefusedError("token", "not a valid token", "a token is one word of ASCII characters")
    url = request.url.removesuffix("/")
    _check_address(url)
    require_move_target(url.partition("#")[0], limits.targets)
    try:
        wait_s = parse_seconds(request.after)
    except ValueError as error:
        raise RefusedError("after", str(error), "use 90s, 10m, 2h") from None
    if not 0 <= wait_s <= MAX_SECONDS:
        raise RefusedError("after", f"{shown(request.after)} is out of range", "use 90s, 10m, 2h")
    return MigrationTarget(request.to, url, request.token, request.allows_plain_http), wait_s


def _check_address(url: str) -> None:
    """Refuse Unix sockets, where the daemon's own identity would count instead of the user's, and
    link-local addresses, where cloud machines offer their credentials."""
    if not _is_http_address(url):
        hint = "use http://HOST:PORT or https://HOST:PORT"
        raise RefusedError("url", f"'{shown(url)}' is not a valid address", hint)
    host = urlsplit(url).hostname or ""
    if is_link_local(host):
        raise RefusedError("url", f"{host} is a link-local address", "use a routed address")


def is_link_local(host: str) -> bool:
    """Whether this is a link-local IP address. Host names are checked when they are resolved."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_link_local


def _is_http_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    is_plain = parts.scheme in ("http", "https") and not (parts.path or parts.query)
    is_host = bool(host) and "@" not in parts.netloc and not any(map(str.isspace, host))
    return is_plain and is_host and port != 0


def check_move_quota(user: str, n_more: int, *, known: Iterable[Move]) -> None:
    if sum(move.user == user for move in known) + n_more > MOST_MOVES:
        raise UserError(
            f"you have {MOST_MOVES} planned moves, which is the limit", "cancel some of the jobs"
        )
