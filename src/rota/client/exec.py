"""Commands beside a job's workers, and connections to its ports.

from rota.client import Client
from rota.client.sessions import run

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
from urllib.parse import quote, urlencode

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect, unix_connect

from rota.client.client import Client
from rota.client.find import Door, NoDaemonError
from rota.client.http import AnswerError
from rota.errors import RotaError, UnavailableError
from rota.wire.json import dump, load
from rota.wire.sessions import (
    CHUNK_BYTES,
    ERRORS,
    FRAME_BYTES_MAX,
    INPUT,
    OUTPUT,
    WINDOW_BYTES,
    Entry,
    Note,
    Size,
)

FIRST_SERVER_ERROR = 500


class Session:
    """One thread may write while another reads."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._changed = threading.Condition()
        self._n_ahead = 0
        self._is_over = False
        self.exit_code = 0
        self.reason = ""
        """Why it ended, if the exit code does not say it all."""

    def write(self, chunk: bytes) -> bool:
        """Returns when it is on its way; False if nobody takes it any more."""
        for start in range(0, len(chunk), CHUNK_BYTES):
            if not self._write(chunk[start : start + CHUNK_BYTES]):
                return False
        return True

    def finish(self) -> bool:
        """There is nothing more to write."""
        return self._send(bytes([INPUT]))

    def resize(self, rows: int, columns: int) -> bool:
        return self._send(dump(Size(rows, columns)))

    def frames(self) -> Generator[tuple[int, bytes]]:
        """Output as it comes, with the stream that it came from; without bytes: the end of that
        stream. When all is read, `exit_code` is known."""
        try:
            for message in self._connection:
                if isinstance(message, bytes):
                    yield message[0], message[1:]
                elif self._heed(load(Note, json.loads(message))):
                    return
            raise ConnectionError
        except (ConnectionClosed, ConnectionError):
            what = "the connection to the daemon broke, and what ran over it was ended"
            raise UnavailableError(what, "'rota status' says whether it is up") from None
        finally:
            self._stop()

    def _heed(self, note: Note) -> bool:
        """Whether it was the last."""
        if note.problem is not None:
            raise AnswerError(note.problem.code, note.problem.message, note.problem.hint)
        if note.exit_code is not None:
            self.exit_code, self.reason = note.exit_code, note.reason
            return True
        with self._changed:
            self._n_ahead -= note.taken
            self._changed.notify_all()
        return False

    def _write(self, chunk: bytes) -> bool:
        with self._changed:
            while self._n_ahead + len(chunk) > WINDOW_BYTES and not self._is_over:
                self._changed.wait()
            self._n_ahead += len(chunk)
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
def enter(rota: Client, job: str, *, entry: Entry, worker: int | None = None) -> Generator[Session]:
    """A command beside a worker (the first, if none is named), which ends when this does."""
    with _opened(rota, job, verb="exec", query={"worker": worker}) as connection:
        connection.send(dump(entry))
        yield Session(connection)


@contextmanager
def dial(rota: Client, job: str, *, port: int, worker: int | None = None) -> Generator[Session]:
    """A connection to a port of 127.0.0.1, as a worker sees it."""
    with _opened(rota, job, verb="forward", query={"port": port, "worker": worker}) as connection:
        yield Session(connection)


@dataclass(frozen=True, slots=True)
class Done:
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
) -> Done:
    """Run a command beside a worker to its end."""
    collected = {OUTPUT: bytearray(), ERRORS: bytearray()}
    with enter(rota, job, entry=Entry(list(command)), worker=worker) as session:

        def write() -> None:
            session.write(written)
            session.finish()

        threading.Thread(target=write, daemon=True).start()
        for stream, chunk in session.frames():
            collected[stream] += chunk
        output, errors = (bytes(each) for each in collected.values())
        return Done(session.exit_code, output, errors, session.reason)


@contextmanager
def _opened(
    rota: Client, job: str, *, verb: str, query: dict[str, int | None]
) -> Generator[ClientConnection]:
    known = {key: value for key, value in query.items() if value is not None}
    path = f"/v1/jobs/{quote(job, safe='')}/{verb}?{urlencode(known)}"
    try:
        opening = _connect(rota, path)
    except InvalidStatus as error:
        raise _refusal(error) from None
    except (OSError, InvalidHandshake) as error:
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            raise _nobody(rota.door) from None
        raise UnavailableError(f"{rota.door} did not answer: {error}", "try again") from None
    with opening as connection:
        yield connection


def _connect(rota: Client, path: str) -> ClientConnection:
    options: dict[str, Any] = {
        "compression": None,
        "max_size": FRAME_BYTES_MAX,
        "ping_interval": None,
        "close_timeout": 2.0,
        "additional_headers": {"Authorization": f"Bearer {rota.token}"} if rota.token else {},
    }
    if rota.door.socket:
        return _typed(unix_connect)(rota.door.socket, uri=f"ws://rota{path}", **options)
    url = f"ws{rota.door.url.removeprefix('http')}{path}"
    return _typed(connect)(url, proxy=None, **options)


def _typed(open_connection: object) -> Callable[..., ClientConnection]:
    """What it returns depends on its options, in more ways than a checker follows."""
    return cast("Callable[..., ClientConnection]", open_connection)


def _refusal(error: InvalidStatus) -> RotaError:
    try:
        told = json.loads(error.response.body or b"")
        code, message, hint = told["code"], told["message"], told.get("hint", "")
    except (ValueError, KeyError, TypeError):
        status = error.response.status_code
        return RotaError(f"the daemon answered {status}", "is it a rota daemon of this version?")
    if error.response.status_code >= FIRST_SERVER_ERROR:
        return UnavailableError(message, hint)
    return AnswerError(code, message, hint)


def _nobody(door: Door) -> NoDaemonError:
    return NoDaemonError(f"no daemon answers at {door}", "start one with 'rota up --detach'")
