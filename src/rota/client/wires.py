"""Connections to a daemon: over a Unix socket, or over TCP."""

from __future__ import annotations

import socket
import ssl
from http.client import HTTPConnection, HTTPSConnection, InvalidURL
from urllib.parse import urlsplit

from rota.client.find import Door, NoDaemonError
from rota.errors import UnavailableError, UserError, shown

CONNECT_S = 5.0


def connect(door: Door, *, answer_s: float | None) -> HTTPConnection:
    """An open connection; `answer_s` is how long to wait for an answer on it."""
    wire = _Unix(door.socket) if door.socket else _tcp(door.url)
    try:
        wire.connect()
    except ssl.SSLError as error:
        wire.close()
        raise UnavailableError(f"{door} cannot be trusted: {error.reason or error}") from None
    except (OSError, UnicodeError):  # A name may be one that nobody could look up.
        wire.close()
        hint = "start one with 'rota up --detach'" if door.socket else "is that its address?"
        raise NoDaemonError(f"no daemon answers at {door}", hint) from None
    # Of a name nobody knows where it leads, nor for how long, before one is there.
    if door.refuses and door.refuses(address := str(wire.sock.getpeername()[0])):
        wire.close()
        raise UserError(f"{door} is at {address}, which is not to be spoken to")
    wire.sock.settimeout(answer_s)
    return wire


class _Unix(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("rota", timeout=CONNECT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def check(door: Door) -> None:
    """Raises where a URL is none that a daemon could have."""
    if door.url:
        _tcp(door.url)


def _tcp(url: str) -> HTTPConnection:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if not host or parts.path not in ("", "/") or parts.query or "@" in parts.netloc:
            raise _no_address(url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        return kind(host, port, timeout=CONNECT_S)
    except (ValueError, InvalidURL):
        raise _no_address(url) from None


def _no_address(url: str) -> UserError:
    return UserError(f"'{shown(url)}' is no address of a daemon", "write http://HOST:PORT")
