"""Run commands beside a job's workers, and connect to their ports.

from rota.client import Client
from rota.client.exec import run

with Client() as rota:
    print(run(rota, "bert", command=["nvidia-smi"]).output.decode())
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from rota.client.client import Client
from rota.client.endpoint import no_daemon
from rota.client.http import AnswerError, open_socket, path_part, require_verified
from rota.errors import RotaError, UnavailableError
from rota.wire.codec import dump, load
from rota.wire.exec import (
    CHUNK_BYTES,
    ERRORS,
    FRAME_BYTES_MAX,
    INPUT,
    OUTPUT,
    WINDOW_BYTES,
    ExecRequest,
    ExecStatus,
    TerminalSize,
)
from rota.wire.streams import enable_tcp_keepalive

FIRST_SERVER_ERROR = 500


class WebSocketSession:
    """A command or a connection, over a WebSocket (`rota.wire.exec` describes the messages). One
    thread may write while another reads."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._changed = threading.Condition()
        self._n_unacknowledged = 0
        self._is_over = False
        self.exit_code = 0
        self.reason = ""
        """Why the session ended, where the exit code is not enough."""

    def write(self, chunk: bytes) -> bool:
        """Send input and return when it is sent; False if the session has ended."""
        for start in range(0, len(chunk), CHUNK_BYTES):
            if not self._write(chunk[start : start + CHUNK_BYTES]):
                return False
        return True

    def finish(self) -> bool:
        """Close the input."""
        return self._send(bytes([INPUT]))

    def resize(self, rows: int, columns: int) -> bool:
        return self._send(dump(TerminalSize(rows, columns)))

    def frames(self) -> Generator[tuple[int, bytes]]:
        """Yield (stream, output) as it arrives; empty output means the end of that stream. After
        the last frame, `exit_code` and `reason` are set."""
        try:
            for message in self._connection:
                if isinstance(message, bytes):
                    yield message[0], message[1:]
                elif self._handle(load(ExecStatus, json.loads(message))):
                    return
            raise ConnectionError
        except (ConnectionClosed, ConnectionError):
            what = "lost the connection to the daemon; the session was ended"
            raise UnavailableError(what, "run 'rota status' to check the daemon") from None
        finally:
            self._stop()

    def _handle(self, status: ExecStatus) -> bool:
        """Handle a status message; return whether it was the last one."""
        if status.problem is not None:
            raise AnswerError(status.problem.code, status.problem.message, status.problem.hint)
        if status.exit_code is not None:
            self.exit_code, self.reason = status.exit_code, status.reason
            return True
        with self._changed:
            self._n_unacknowledged -= status.taken
            self._changed.notify_all()
        return False

    def _write(self, chunk: bytes) -> bool:
        with self._changed:
            while self._n_unacknowledged + len(chunk) > WINDOW_BYTES and not self._is_over:
                self._changed.wait()
            self._n_unacknowledged += len(chunk)
        return self._send(bytes([INPUT]) + chunk)

    def _send(self, message: str | bytes) -> bool:
        if self._is_over:
            return False
        try:
            self._connection.send(message)
        except ConnectionClosed:
            return False
        return True

    def _stop(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


@contextmanager
def open_exec(
    rota: Client, job: str, *, request: ExecRequest, worker: int | None = None
) -> Generator[WebSocketSession]:
    """Run a command beside a worker (default: the first). The command ends with the context."""
    with _opened(rota, job, verb="exec", query={"worker": worker}) as connection:
        connection.send(dump(request))
        yield WebSocketSession(connection)


@contextmanager
def dial(
    rota: Client, job: str, *, port: int, worker: int | None = None
) -> Generator[WebSocketSession]:
    """Connect to a port of 127.0.0.1 in the network of a worker."""
    with _opened(rota, job, verb="forward", query={"port": port, "worker": worker}) as connection:
        yield WebSocketSession(connection)


@dataclass(frozen=True, slots=True)
class ExecResult:
    exit_code: int
    output: bytes
    errors: bytes
    reason: str = ""


def run(
    rota: Client,
    job: str,
    *,
    command: Sequence[str],
    written: bytes = b"",
    worker: int | None = None,
) -> ExecResult:
    """Run a command beside a worker and wait for its end. `written` is its input."""
    collected = {OUTPUT: bytearray(), ERRORS: bytearray()}
    with open_exec(rota, job, request=ExecRequest(list(command)), worker=worker) as session:

        def write() -> None:
            session.write(written)
            session.finish()

        threading.Thread(target=write, daemon=True).start()
        for stream, chunk in session.frames():
            collected[stream] += chunk
        output, errors = (bytes(each) for each in collected.values())
        return ExecResult(session.exit_code, output, errors, session.reason)


@contextmanager
def _opened(
    rota: Client, job: str, *, verb: str, query: dict[str, int | None]
) -> Generator[ClientConnection]:
    known = {key: value for key, value in query.items() if value is not None}
    path = f"/v1/jobs/{path_part(job)}/{verb}?{urlencode(known)}"
    try:
        opening = _connect(rota, path)
    except InvalidStatus as error:
        raise _refusal(error) from None
    except (OSError, InvalidHandshake) as error:
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            raise no_daemon(rota.endpoint) from None
        raise UnavailableError(f"no response from {rota.endpoint}: {error}", "try again") from None
    with opening as connection:
        enable_tcp_keepalive(connection.socket)
        yield connection


def _connect(rota: Client, path: str) -> ClientConnection:
    options: dict[str, Any] = {
        "compression": None,
        "max_size": FRAME_BYTES_MAX,
        "ping_interval": None,
        "close_timeout": 2.0,
        "additional_headers": {"Authorization": f"Bearer {rota.token}"} if rota.token else {},
    }
    if rota.token:
        require_verified(rota.endpoint)
    opened, host = open_socket(rota.endpoint)
    # The socket is encrypted already, so the library sees a plain connection.
    return _connect_websocket(f"ws://{host}{path}", sock=opened, proxy=None, **options)


_connect_websocket = cast("Callable[..., ClientConnection]", connect)
"""With a type, which depends on the options of the function."""


def _refusal(error: InvalidStatus) -> RotaError:
    try:
        problem = json.loads(error.response.body or b"")
        code, message, hint = problem["code"], problem["message"], problem.get("hint", "")
    except (ValueError, KeyError, TypeError):
        status = error.response.status_code
        what = f"unexpected response with HTTP status {status}"
        return RotaError(what, "check that the address is that of a rota daemon of this version")
    if error.response.status_code >= FIRST_SERVER_ERROR:
        return UnavailableError(message, hint)
    return AnswerError(code, message, hint)
