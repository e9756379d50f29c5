"""One kept connection to the daemon, over a Unix socket or TCP."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from typing import Any, cast
from urllib.parse import urlsplit

from rota_trainer.messages import PATH, Orders, orders_from

PATIENCE_S = 5.0
"""How much longer than it was asked to hold an answer the daemon may take."""
LONGEST_ANSWER = 8 << 20
"""More than the values that a store gives at once, in base64."""
FINAL = (401, 403, 404)
"""The token opens nothing any more, or this daemon has no such door."""
REFUSED = (400, 413, 422)
"""Something is wrong with this report; the next one may be fine."""


class WireError(Exception):
    """The report did not arrive, or was not taken."""

    def __init__(
        self, what: str, *, why: str = "", is_final: bool = False, is_refusal: bool = False
    ) -> None:
        super().__init__(what)
        self.why = why or what
        """In the daemon's own words, if it had any."""
        self.is_final = is_final
        self.is_refusal = is_refusal


class _UnixConnection(http.client.HTTPConnection):
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
        self._connection: http.client.HTTPConnection | None = None

    def send(self, report: dict[str, Any], timeout_s: float) -> Orders:
        """The orders that came back. Raises nothing but `WireError`."""
        return orders_from(self.post(PATH, report, timeout_s=timeout_s))

    def post(self, path: str, message: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """The object that came back. Raises nothing but `WireError`."""
        try:
            status, answer = self._exchange(path, json.dumps(message), timeout_s=timeout_s)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            self.close()
            raise WireError(f"{type(error).__name__}: {error}"[:200]) from None
        told = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
        if status == 200 and isinstance(answer, dict):
            return told
        self.close()
        # A proxy has its own reasons for its own pages: only the daemon's word is final.
        is_ours = "code" in told
        raise WireError(
            f"the daemon answered {status}",
            why=str(told.get("message", ""))[:200],
            is_final=is_ours and status in FINAL,
            is_refusal=status in REFUSED,
        )

    def hang_up(self) -> None:
        """From another thread: whoever waits for an answer waits no longer."""
        connection = self._connection
        with contextlib.suppress(OSError, AttributeError):
            if connection is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, path: str, body: str, *, timeout_s: float) -> Any:
        if self._connection is None:
            self._connection = _connection(self._url, timeout_s)
        connection = self._connection
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        connection.request("POST", path, body, self._headers)
        answer = connection.getresponse()
        read = answer.read(LONGEST_ANSWER)
        if len(read) == LONGEST_ANSWER:
            raise ValueError("the answer is too long")
        if answer.status != 200:
            with contextlib.suppress(ValueError, RecursionError):
                return answer.status, json.loads(read)
            return answer.status, None
        return 200, json.loads(read)


def _connection(url: str, timeout_s: float) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return _UnixConnection(parts.path, timeout_s)
    if parts.scheme == "https":
        return http.client.HTTPSConnection(
            parts.hostname or "localhost", parts.port, timeout=timeout_s
        )
    return http.client.HTTPConnection(parts.hostname or "localhost", parts.port, timeout=timeout_s)
