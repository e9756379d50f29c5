"""One kept connection to the daemon, over a Unix socket or TCP."""

from __future__ import annotations

import json
import socket
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Dict, Optional
from urllib.parse import urlsplit

from rota_trainer.messages import PATH, Orders, orders_from

PATIENCE_S = 5.0
"""How much longer than it was asked to hold an answer the daemon may take."""
LONGEST_ANSWER = 1 << 20


class WireError(Exception):
    """The report did not arrive, or was refused. `is_final`: nothing will change about that."""

    def __init__(self, what: str, is_final: bool = False) -> None:
        super().__init__(what)
        self.is_final = is_final


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Wire:
    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection: Optional[HTTPConnection] = None

    def send(self, report: Dict[str, Any], timeout_s: float) -> Orders:
        """The orders that came back. Raises nothing but `WireError`."""
        try:
            if self._connection is None:
                self._connection = _connection(self._url, timeout_s)
            self._connection.timeout = timeout_s
            if self._connection.sock is not None:
                self._connection.sock.settimeout(timeout_s)
            self._connection.request("POST", PATH, json.dumps(report), self._headers)
            answer = self._connection.getresponse()
            body = answer.read(LONGEST_ANSWER)
            if answer.status == 200:
                return orders_from(json.loads(body))
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            raise WireError(f"{type(error).__name__}: {error}") from None
        self.close()
        # Too many or too busy passes; a token that opens nothing any more does not.
        is_final = answer.status in (400, 401, 403, 404, 405, 422)
        raise WireError(f"the daemon answered {answer.status}", is_final)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _connection(url: str, timeout_s: float) -> HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return _UnixConnection(parts.path, timeout_s)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return kind(parts.hostname or "localhost", parts.port, timeout=timeout_s)
