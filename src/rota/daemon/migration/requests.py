"""Where jobs may be moved to, and how many. Whoever names a daemon makes ours speak to it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from rota.core.notation import MAX_SECONDS, parse_seconds
from rota.daemon.fields import RefusedError
from rota.daemon.move_files import Move, Target
from rota.daemon.people import Caller, ForbiddenError, require_write
from rota.errors import UserError, shown
from rota.wire.moves import MoveRequest

MOST_MOVES = 10_000
"""Of one user."""
LONGEST_TOKEN = 16 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_TOKEN = re.compile(r"[!-~]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Limits:
    """`targets` are the addresses that jobs may be moved to; none: any. `patience_s` is how long
    one of them may be away before a job stays here."""

    targets: tuple[str, ...] = ()
    patience_s: float = 60.0


DEFAULT_LIMITS = Limits()


def planned(caller: Caller, request: MoveRequest, *, limits: Limits) -> tuple[Target, float]:
    """Where to, and after which time. Never repeats the token."""
    require_write(caller)
    if not _NAME.fullmatch(request.to):
        raise RefusedError("to", f"'{shown(request.to)}' is no name of a context")
    if len(request.token) > LONGEST_TOKEN or not _TOKEN.fullmatch(request.token):
        raise RefusedError("token", "it is no token", "a token is one word of ASCII")
    url = request.url.removesuffix("/")
    _check_address(url)
    if limits.targets and url not in limits.targets:
        hint = "an administrator may add it to the setting move_to"
        raise ForbiddenError(f"jobs may not be moved to {shown(url)}", hint)
    try:
        wait_s = parse_seconds(request.after)
    except ValueError as error:
        raise RefusedError("after", str(error), "use 90s, 10m, 2h") from None
    if not 0 <= wait_s <= MAX_SECONDS:
        raise RefusedError("after", f"{shown(request.after)} is out of bounds", "use 90s, 10m, 2h")
    return Target(request.to, url, request.token), wait_s


def _check_address(url: str) -> None:
    """A socket of this machine would take us for who we are, not for whom we act; and what hosts
    keep at link-local addresses is for them alone."""
    if not _is_an_address(url):
        hint = "write http://HOST:PORT or https://HOST:PORT"
        raise RefusedError("url", f"'{shown(url)}' is nowhere to move a job to", hint)
    host = urlsplit(url).hostname or ""
    if is_link_local(host):
        raise RefusedError("url", f"{host} is a link-local address", "use one that is routed")


def is_link_local(host: str) -> bool:
    """Whether it is such an address. A name is none; where it leads, shows when one is there."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_link_local


def _is_an_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    is_plain = parts.scheme in ("http", "https") and not (parts.path or parts.query)
    is_host = bool(host) and "@" not in parts.netloc and not any(map(str.isspace, host))
    return is_plain and is_host and port != 0


def check_room(user: str, n_more: int, *, known: Iterable[Move]) -> None:
    if sum(move.user == user for move in known) + n_more > MOST_MOVES:
        raise UserError(f"{MOST_MOVES} of your jobs are to be moved already", "cancel some of them")
