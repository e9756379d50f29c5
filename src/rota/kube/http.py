"""Requests to an API server: bounded in time and number, tried again where that is safe."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode
from urllib.request import getproxies

import aiohttp
import msgspec
from yarl import URL

from rota.engines.kubernetes.kubeconfig import Access
from rota.engines.kubernetes.objects import Object
from rota.engines.kubernetes.rooms import Room
from rota.engines.kubernetes.wires import Wires
from rota.errors import UnavailableError, shown

AT_ONCE = 16
ANSWER_S = 12.0
"""A little longer than an API server waits for a webhook, so that it can say which one."""
CONNECT_S = 5.0
ANSWER = aiohttp.ClientTimeout(ANSWER_S, sock_connect=CONNECT_S)
LULL_S = 5.0
TRIES = 5
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 2.0
MOST_DOUBLINGS = 10
"""Some things are tried for days."""
WORDS = 400
"""Characters of an API server's explanation that are passed on."""
UNREACHABLE = 0
TOO_MANY, UNAUTHORIZED, NOT_FOUND, GONE, TOO_LARGE = 429, 401, 404, 410, 413
SERVER_ERROR, FIRST_ERROR = 500, 400
UNTYPED = "failed to create typed patch object"
"""What is wrong with an object that is applied, such as two entries of one key, is told as an error
of the server."""
SAFE_TO_REPEAT = frozenset({"GET", "PUT", "PATCH", "DELETE"})
"""A create is repeated only if the server says, or nobody was there to say, that nothing came
of it."""


class ApiError(UnavailableError):
    """The API server said no, or nothing at all (`status` 0). `reason` is its own word:
    AlreadyExists, Conflict, Expired, Forbidden, Invalid, NotFound, ..."""

    def __init__(self, status: int, reason: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.status = status
        self.reason = reason

    @property
    def is_passing(self) -> bool:
        """Whether the same request may well work later. Credentials are renewed by others."""
        passing = (UNREACHABLE, UNAUTHORIZED, TOO_MANY)
        is_final = self.is_too_large or UNTYPED in self.message
        return self.status in passing or (self.status >= SERVER_ERROR and not is_final)

    @property
    def is_too_large(self) -> bool:
        """Whether an object would be larger than the cluster keeps, which etcd says in words."""
        return self.status == TOO_LARGE or "request is too large" in self.message

    @property
    def is_outage(self) -> bool:
        """Whether the server is there, and somebody is not whom it has to ask about such an
        object: a webhook. Of its own store, or of itself, it says so in other words."""
        return self.status == SERVER_ERROR and self.reason == "InternalError"


@dataclass(frozen=True, slots=True)
class Ask:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None
    kind_of_body: str = "application/json"
    accept: str = "application/json"


def _may_always() -> None:
    pass


class Transport:
    def __init__(self, access: Access) -> None:
        self.access = access
        self.gate: Callable[[], None] = _may_always
        """Called before every write, and before each try of one. Raises when we may not."""
        self._room = Room(AT_ONCE)
        self._session: aiohttp.ClientSession | None = None
        self._wires = Wires()
        self._who: dict[str, str] | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        await self._wires.cut()

    async def lull(self) -> None:
        """Until nobody waits to be heard, or for a while: for what can wait."""
        await self._room.lull(most_s=LULL_S)

    async def ask(self, ask: Ask, *, is_command: bool = False) -> Object:
        """The answer. Tried again, with longer and longer waits, while the trouble is passing."""
        for n_before in range(TRIES):
            try:
                async with self._room:
                    if is_command:
                        self.gate()
                    return await self._answer(ask)
            except ApiError as error:
                if n_before + 1 == TRIES or not _is_worth_another_try(error, ask):
                    raise
            await asyncio.sleep(wait_s(n_before))
        raise AssertionError

    @asynccontextmanager
    async def stream(
        self, ask: Ask, *, silence_s: float | None
    ) -> AsyncGenerator[aiohttp.StreamReader, None]:
        """An answer that comes bit by bit. None of it for `silence_s`: it is broken off."""
        patience = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=silence_s)
        try:
            async with await self._send(ask, patience) as response:
                if response.status == UNAUTHORIZED:
                    self._who = await self.access.headers(is_refused=True)
                if response.status >= FIRST_ERROR:
                    raise refusal(response.status, await response.read())
                try:
                    yield response.content
                finally:
                    _break_off(response)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unreachable(self.access.url, error) from None

    async def _answer(self, ask: Ask) -> Object:
        """Credentials that are refused are renewed once."""
        status, content = await self._once(ask)
        if status == UNAUTHORIZED:
            self._who = await self.access.headers(is_refused=True)
            status, content = await self._once(ask)
        if status >= FIRST_ERROR:
            raise refusal(status, content)
        try:
            return msgspec.json.decode(content)
        except msgspec.DecodeError:
            raise _unreadable(status, content) from None

    async def _once(self, ask: Ask) -> tuple[int, bytes]:
        try:
            async with await self._send(ask, ANSWER) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unreachable(self.access.url, error) from None

    async def _send(self, ask: Ask, patience: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = _session(self.access, self._wires)
        if self._who is None:
            self._who = await self.access.headers()
        headers = {**self._who, "Accept": ask.accept}
        content = None
        if ask.body is not None:
            content = msgspec.json.encode(ask.body)
            headers["Content-Type"] = ask.kind_of_body
        query = f"?{urlencode(ask.query)}" if ask.query else ""
        url = URL(f"{self.access.url}{ask.path}{query}", encoded=True)
        return await self._session.request(
            ask.method, url, data=content, headers=headers, timeout=patience, allow_redirects=False
        )


def _break_off(response: aiohttp.ClientResponse) -> None:
    """A stream that is left in the middle is not said goodbye to: that takes an answer."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def _session(access: Access, wires: Wires) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=access.tls, limit=0, socket_factory=wires),
        # Unpacking costs more than a cluster's own network does.
        headers={"Accept-Encoding": "identity", "User-Agent": "rota"},
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=access.uses_proxy and bool(getproxies()),
    )


def refusal(status: int, content: bytes) -> ApiError:
    """From a `Status` object; or from whatever a proxy in between wrote."""
    try:
        said = msgspec.json.decode(content)
        return of_status(said, status=status)
    except (msgspec.DecodeError, AttributeError, ValueError):
        return _unreadable(status, content)


def of_status(said: Object, *, status: int = 0) -> ApiError:
    code = said.get("code") or status
    message = shown(str(said.get("message") or "no reason given"), WORDS)
    return ApiError(int(code), str(said.get("reason") or ""), f"the cluster refused: {message}")


def wait_s(n_before: int) -> float:
    """How long to wait after so many tries: longer each time, and never in step with others."""
    longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(n_before, MOST_DOUBLINGS))
    return random.uniform(longest / 2, longest)


def _is_worth_another_try(error: ApiError, ask: Ask) -> bool:
    if error.status == TOO_MANY or error.reason == "NotConnected":
        return True
    return error.is_passing and error.status != UNAUTHORIZED and ask.method in SAFE_TO_REPEAT


def _unreachable(url: str, error: Exception) -> ApiError:
    is_unconnected = isinstance(error, aiohttp.ClientConnectorError)
    why = shown(str(error) or type(error).__name__, WORDS)
    reason = "NotConnected" if is_unconnected else "Broken"
    hint = "is the cluster up, and its address in the kubeconfig right?"
    return ApiError(UNREACHABLE, reason, f"the cluster at {url} does not answer: {why}", hint)


def _unreadable(status: int, content: bytes) -> ApiError:
    """Of a kind that it does not know, an API server says so in plain words."""
    said = shown(content[:WORDS].decode(errors="replace").strip())
    reason = "NotFound" if status == NOT_FOUND else "Unreadable"
    return ApiError(status, reason, f"the cluster answered with {status}: {said}")
