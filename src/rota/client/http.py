"""Requests and answers: errors of the daemon become exceptions here."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

import httpx2

from rota.client.find import Door, NoDaemonError
from rota.errors import RotaError, UnavailableError, UserError
from rota.wire.json import dump

CONNECT_S = 5.0
ANSWER_S = 60.0
FIRST_SERVER_ERROR = 500
FIRST_ERROR = 400

Query = Mapping[str, Any]


class AnswerError(UserError):
    """The daemon refused; `code` is its own word for why."""

    def __init__(self, code: str, message: str, hint: str = "", *, field: str = "") -> None:
        super().__init__(message, hint)
        self.code = code
        self.field = field


class Http:
    """One daemon, as HTTP."""

    def __init__(self, door: Door, token: str = "") -> None:
        self.door = door
        self.token = token or os.environ.get("ROTA_TOKEN", "")
        transport = httpx2.HTTPTransport(uds=door.socket) if door.socket else None
        self._client = httpx2.Client(
            base_url=door.url or "http://rota",
            transport=transport,
            timeout=httpx2.Timeout(ANSWER_S, connect=CONNECT_S),
            headers={"Authorization": f"Bearer {self.token}"} if self.token else {},
            trust_env=False,
        )

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
        with self._told():
            response = self._client.request(
                method,
                f"/v1{path}",
                content=None if body is None else dump(body),
                params=_known(query),
                headers={"Content-Type": "application/json", **(headers or {})},
            )
        require_success(response)
        return response.json()

    def send(self, method: str, path: str, content: bytes | BinaryIO) -> Any:
        """The answer's JSON to a body that is sent as it is."""
        with self._told():
            response = self._client.request(method, f"/v1{path}", content=content)
        require_success(response)
        return response.json()

    def bytes(self, path: str, query: Query) -> Iterator[bytes]:
        """The answer as it comes."""
        with self._told(), self._stream(path, query, accept="*/*") as response:
            yield from response.iter_bytes()

    def events(self, path: str, query: Query) -> Iterator[dict[str, Any]]:
        """Server-sent events, as JSON."""
        accept = "text/event-stream"
        with self._told(), self._stream(path, query, accept=accept) as response:
            for event in httpx2.EventSource(response):
                if event.data:
                    yield json.loads(event.data)

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _stream(self, path: str, query: Query, *, accept: str) -> Generator[httpx2.Response]:
        with self._client.stream(
            "GET",
            f"/v1{path}",
            params=_known(query),
            headers={"Accept": accept},
            timeout=httpx2.Timeout(None, connect=CONNECT_S),
        ) as response:
            if response.status_code >= FIRST_ERROR:
                response.read()
            require_success(response)
            yield response

    @contextmanager
    def _told(self) -> Generator[None]:
        try:
            yield
        except httpx2.ConnectError:
            raise NoDaemonError(
                f"no daemon answers at {self.door}", "start one with 'rota up --detach'"
            ) from None
        except httpx2.TimeoutException:
            raise UnavailableError(f"{self.door} did not answer in time", "try again") from None
        except httpx2.TransportError as error:
            what = f"the connection to {self.door} broke: {error or type(error).__name__}"
            raise UnavailableError(what, "'rota status' says whether it is up") from None


def require_success(response: httpx2.Response) -> None:
    status = response.status_code
    if status < FIRST_ERROR:
        return
    try:
        told = response.json()
        code, message, hint = told["code"], told["message"], told.get("hint", "")
        field = told.get("details", {}).get("field", "")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RotaError(f"the daemon answered {status}", "is it a rota daemon?") from None
    if status >= FIRST_SERVER_ERROR:
        raise UnavailableError(message, hint)
    raise AnswerError(code, message, hint, field=field)


def _known(query: Query | None) -> dict[str, Any]:
    return {key: value for key, value in (query or {}).items() if value is not None}
