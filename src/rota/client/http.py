"""Requests and answers: errors of the daemon become exceptions here.

On the standard library's HTTP, because it loads in a fraction of the time that a list takes; those
with more comfort do not.
"""

from __future__ import annotations

import json
import os
import select
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, BinaryIO
from urllib.parse import urlencode

from rota.client.find import Door, NoDaemonError
from rota.client.wires import connect
from rota.errors import RotaError, UnavailableError, UserError
from rota.wire.json import dump_brief

ANSWER_S = 60.0
FIRST_SERVER_ERROR = 500
FIRST_ERROR = 400
CHUNK = 65536

Query = Mapping[str, Any]


class AnswerError(UserError):
    """The daemon refused; `code` is its own word for why."""

    def __init__(self, code: str, message: str, hint: str = "", *, field: str = "") -> None:
        super().__init__(message, hint)
        self.code = code
        self.field = field


class Http:
    """One daemon, as HTTP. Threads may share it: a connection is one request's at a time."""

    def __init__(self, door: Door, token: str | None = None, *, answer_s: float = ANSWER_S) -> None:
        """Without a token: the one that goes with the door. An empty one is none."""
        self.door = door
        self.token = door.token if token is None else token
        self._answer_s = answer_s
        self._idle: list[HTTPConnection] = []

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The answer's JSON."""
        content = None if body is None else dump_brief(body).encode()
        with self._told():
            status, answer = self._exchange(
                method, _path(path, query), body=content, headers=headers or {}
            )
        return _read(status, answer)

    def send(self, method: str, path: str, *, content: bytes | BinaryIO) -> Any:
        """The answer's JSON to a body that is sent as it is."""
        headers = {"Content-Type": "application/octet-stream"}
        if not isinstance(content, bytes):
            headers["Content-Length"] = str(os.fstat(content.fileno()).st_size)
        with self._told():
            status, answer = self._exchange(
                method, _path(path, None), body=content, headers=headers
            )
        return _read(status, answer)

    def bytes(self, path: str, query: Query) -> Iterator[bytes]:
        """The answer as it comes."""
        with self._told(), self._stream(path, query, accept="*/*") as response:
            while chunk := response.read1(CHUNK):
                yield chunk

    def events(self, path: str, query: Query) -> Iterator[dict[str, Any]]:
        """Server-sent events, as JSON."""
        accept = "text/event-stream"
        with self._told(), self._stream(path, query, accept=accept) as response:
            for line in _lines(response):
                # Ours are one line of JSON each; other lines number them, or say "still here".
                if line.startswith(b"data:"):
                    yield json.loads(line[5:])

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _exchange(
        self, method: str, path: str, *, body: bytes | BinaryIO | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """On a connection that was used before, if there is one. If the daemon has closed it
        meanwhile, and it does no harm to ask twice, then on a new one."""
        while True:
            connection, is_used = self._connection()
            try:
                # A daemon that refuses a long body may hang up on it, and still have said why.
                with suppress(BrokenPipeError):
                    connection.request(
                        method, path, body=body, headers={**self._headers(), **headers}
                    )
                response = connection.getresponse()
                answer = response.read()
            except (HTTPException, OSError) as error:
                connection.close()
                if not is_used or method != "GET" or isinstance(error, TimeoutError):
                    raise
                continue
            if not response.will_close:
                self._idle.append(connection)
            return response.status, answer

    def _connection(self) -> tuple[HTTPConnection, bool]:
        """One that was used before, if the daemon still listens on it; else a new one."""
        while True:
            try:
                known = self._idle.pop()
            except IndexError:
                return connect(self.door, answer_s=self._answer_s), False
            if not _is_over(known):
                return known, True
            known.close()

    def _headers(self, accept: str = "application/json") -> dict[str, str]:
        headers = {"Accept": accept, "Content-Type": "application/json"}
        return {**headers, "Authorization": f"Bearer {self.token}"} if self.token else headers

    @contextmanager
    def _stream(self, path: str, query: Query, *, accept: str) -> Generator[HTTPResponse]:
        connection = connect(self.door, answer_s=None)
        try:
            connection.request("GET", _path(path, query), headers=self._headers(accept))
            response = connection.getresponse()
            if response.status >= FIRST_ERROR:
                require_success(response.status, response.read())
            yield response
        finally:
            connection.close()

    @contextmanager
    def _told(self) -> Generator[None]:
        try:
            yield
        except NoDaemonError:
            raise
        except TimeoutError:
            raise UnavailableError(f"{self.door} did not answer in time", "try again") from None
        except (HTTPException, OSError) as error:
            what = f"the connection to {self.door} broke: {error or type(error).__name__}"
            raise UnavailableError(what, "'rota status' says whether it is up") from None


def _lines(response: HTTPResponse) -> Iterator[bytes]:
    """Its own `readline` takes a connection that breaks for the end."""
    rest = b""
    while chunk := response.read1(CHUNK):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole


def _read(status: int, answer: bytes) -> Any:
    require_success(status, answer)
    try:
        return json.loads(answer)
    except ValueError:
        raise RotaError(f"the daemon answered {status}", "is it a rota daemon?") from None


def _is_over(connection: HTTPConnection) -> bool:
    """Between two requests a daemon says nothing but farewell: when it ends, or when nobody has
    asked it anything for long."""
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def require_success(status: int, answer: bytes) -> None:
    if status < FIRST_ERROR:
        return
    try:
        told = json.loads(answer)
        code, message, hint = told["code"], told["message"], told.get("hint", "")
        field = told.get("details", {}).get("field", "")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RotaError(f"the daemon answered {status}", "is it a rota daemon?") from None
    if status >= FIRST_SERVER_ERROR:
        raise UnavailableError(message, hint)
    raise AnswerError(code, message, hint, field=field)


def _path(path: str, query: Query | None) -> str:
    known = {key: _word(value) for key, value in (query or {}).items() if value is not None}
    return f"/v1{path}?{urlencode(known, doseq=True)}" if known else f"/v1{path}"


def _word(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
