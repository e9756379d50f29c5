"""A persistent HTTP connection to the daemon, over a Unix socket or TCP."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import socket
import ssl
from typing import Any, cast
from urllib.parse import urlsplit

from rota_trainer.reporting.messages import PATH, Orders, orders_from

RESPONSE_MARGIN_S = 5.0
"""How much longer than the requested wait a response may take."""
LONGEST_ANSWER = 8 << 20
"""Larger than the largest response of the rendezvous store, in base64."""
FINAL_STATUSES = (401, 403, 404)
"""The token is not valid any more, or this daemon does not have the route: retries are useless."""
REJECTED_STATUSES = (400, 413, 422)
"""This request is invalid; the next one may be valid."""


class DaemonRequestError(Exception):
    """The request did not reach the daemon, or the daemon refused it.

    `is_final`: no request will succeed any more. `is_refusal`: this request must not be repeated.
    """

    def __init__(
        self, what: str, *, why: str = "", is_final: bool = False, is_refusal: bool = False
    ) -> None:
        super().__init__(what)
        self.why = why or what
        """The daemon's error message, if it sent one."""
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


class _PinnedConnection(http.client.HTTPSConnection):
    """TLS with one trusted certificate. It is checked before the first request, which has the
    token."""

    def __init__(self, host: str, port: int | None, *, fingerprint: str, timeout: float) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        super().__init__(host, port, timeout=timeout, context=context)
        self._fingerprint = fingerprint

    def connect(self) -> None:
        super().connect()
        certificate = cast("ssl.SSLSocket", self.sock).getpeercert(binary_form=True) or b""
        if hashlib.sha256(certificate).hexdigest() != self._fingerprint:
            self.close()
            raise ssl.SSLError("the daemon has an unknown certificate")


class DaemonConnection:
    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection: http.client.HTTPConnection | None = None

    def send(self, report: dict[str, Any], timeout_s: float) -> Orders:
        """Send a report; returns the orders of the response. Raises only `DaemonRequestError`."""
        return orders_from(self.post(PATH, report, timeout_s=timeout_s))

    def post(self, path: str, message: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Send a message; returns the JSON object of the response. Raises only
        `DaemonRequestError`."""
        try:
            status, answer = self._exchange(path, json.dumps(message), timeout_s=timeout_s)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            self.close()
            raise DaemonRequestError(f"{type(error).__name__}: {error}"[:200]) from None
        reply = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
        if status == 200 and isinstance(answer, dict):
            return reply
        self.close()
        # Errors of the daemon have a code. A proxy's error page is never final.
        is_ours = "code" in reply
        raise DaemonRequestError(
            f"the daemon answered {status}",
            why=str(reply.get("message", ""))[:200],
            is_final=is_ours and status in FINAL_STATUSES,
            is_refusal=status in REJECTED_STATUSES,
        )

    def interrupt(self) -> None:
        """From another thread: end the wait for a response."""
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
            raise ValueError("the response is too long")
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
        host, fingerprint = parts.hostname or "localhost", parts.fragment.partition("=")[2]
        if fingerprint:
            return _PinnedConnection(host, parts.port, fingerprint=fingerprint, timeout=timeout_s)
        return http.client.HTTPSConnection(host, parts.port, timeout=timeout_s)
    return http.client.HTTPConnection(parts.hostname or "localhost", parts.port, timeout=timeout_s)
