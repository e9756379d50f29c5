"""Connections to a daemon: over a Unix socket, or over TCP."""

from __future__ import annotations

import socket
import ssl
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

from rota.client.find import Door, NoDaemonError
from rota.errors import UnavailableError, UserError

CONNECT_S = 5.0


def connect(door: Door, *, answer_s: float | None) -> HTTPConnection:
    """An open connection; `answer_s` is how long to wait for an answer on it."""
    wire = _Unix(door.socket) if door.socket else _tcp(door.url)
    try:
        wire.connect()
    except ssl.SSLError as error:
        wire.close()
        raise UnavailableError(f"{door} cannot be trusted: {error.reason or error}") from None
    except OSError:
        wire.close()
        raise NoDaemonError(
            f"no daemon answers at {door}", "start one with 'rota up --detach'"
        ) from None
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


def _tcp(url: str) -> HTTPConnection:
    parts = urlsplit(url)
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host or parts.path not in ("", "/"):
        raise UserError(f"'{url[:60]}' is no address of a daemon", "write http://HOST:PORT")
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return kind(host, port, timeout=CONNECT_S)
