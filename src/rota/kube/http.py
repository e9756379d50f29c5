"""Send requests to an API server, with limits on time and number, and retry where that is safe."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode
from urllib.request import getproxies
from weakref import WeakSet

import aiohttp
import msgspec
from yarl import URL

from rota.errors import shown
from rota.kube.auth import ClusterAccess
from rota.kube.errors import (
    FIRST_ERROR,
    MESSAGE_CHARS,
    TOO_MANY,
    UNAUTHORIZED,
    UNREACHABLE,
    ApiError,
    error_from_response,
    unreadable_response,
)
from rota.kube.json_parser import parse_json
from rota.kube.resources import Object

MAX_CONCURRENT = 16
RESPONSE_TIMEOUT_S = 12.0
"""Slightly longer than an API server waits for a webhook, so that its error names the webhook."""
CONNECT_TIMEOUT_S = 5.0
RESPONSE_TIMEOUT = aiohttp.ClientTimeout(RESPONSE_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
MAX_IDLE_WAIT_S = 5.0
MAX_TRIES = 5
FIRST_WAIT_S = 0.1
MAX_WAIT_S = 2.0
MAX_DOUBLINGS = 10
"""Keeps the power small: some calls are retried for days."""
SAFE_TO_REPEAT = frozenset({"GET", "PUT", "PATCH", "DELETE"})
"""A create (POST) is retried only if it surely had no effect: the server rejected it as one
request too many, or the connection could not be opened."""
RESPONSE_BYTES_MAX = 256 * 1024**2
"""A page of 500 objects of the largest size would be larger; real pages have some MiB."""
POLL_S = 0.005
CLOSE_TIMEOUT_S = 2.0
Address = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class ApiRequest:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None
    content_type: str = "application/json"
    accept: str = "application/json"


def allow_always() -> None:
    """The gate of a client that may always write."""


class Transport:
    """Sends requests to one API server: limits them, authenticates, and retries."""

    def __init__(self, access: ClusterAccess, gate: Callable[[], None] = allow_always) -> None:
        """The `gate` is called before each try of a write, and raises if writes are forbidden."""
        self.access = access
        self._gate = gate
        self._limiter = RequestLimiter(MAX_CONCURRENT)
        self._session: aiohttp.ClientSession | None = None
        self._sockets = SocketTracker()
        self._auth_headers: dict[str, str] | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        await self._sockets.close_all()

    async def wait_idle(self) -> None:
        """Wait until no request waits for its turn, or until a timeout. For work that is not
        urgent."""
        await self._limiter.wait_idle(timeout_s=MAX_IDLE_WAIT_S)

    async def request(self, request: ApiRequest, *, is_command: bool = False) -> Object:
        """The decoded response. Retries transient errors with growing delays."""
        for n_failures in range(MAX_TRIES):
            try:
                async with self._limiter:
                    if is_command:
                        self._gate()
                    return await self._request_once(request)
            except ApiError as error:
                if n_failures + 1 == MAX_TRIES or not _is_retryable(error, request):
                    raise
            await asyncio.sleep(retry_delay_s(n_failures))
        raise AssertionError

    @asynccontextmanager
    async def stream(
        self, request: ApiRequest, *, read_timeout_s: float | None
    ) -> AsyncGenerator[aiohttp.StreamReader, None]:
        """A response that arrives in pieces. Fails if none arrives for `read_timeout_s`."""
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT_S, sock_read=read_timeout_s)
        try:
            async with await self._send(request, timeout) as response:
                if response.status == UNAUTHORIZED:
                    self._auth_headers = await self.access.headers(is_refused=True)
                if response.status >= FIRST_ERROR:
                    raise error_from_response(response.status, await _read(response))
                try:
                    yield response.content
                finally:
                    _abort_stream(response)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unreachable(self.access.url, error) from None

    async def _request_once(self, request: ApiRequest) -> Object:
        """Renews rejected credentials once."""
        status, content = await self._round_trip(request)
        if status == UNAUTHORIZED:
            self._auth_headers = await self.access.headers(is_refused=True)
            status, content = await self._round_trip(request)
        if status >= FIRST_ERROR:
            raise error_from_response(status, content)
        try:
            return parse_json(content)
        except msgspec.DecodeError:
            raise unreadable_response(status, content) from None

    async def _round_trip(self, request: ApiRequest) -> tuple[int, bytes]:
        try:
            async with await self._send(request, RESPONSE_TIMEOUT) as response:
                return response.status, await _read(response)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unreachable(self.access.url, error) from None

    async def _send(
        self, request: ApiRequest, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = _session(self.access, self._sockets)
        if self._auth_headers is None:
            self._auth_headers = await self.access.headers()
        headers = {**self._auth_headers, "Accept": request.accept}
        content = None
        if request.body is not None:
            content = msgspec.json.encode(request.body)
            headers["Content-Type"] = request.content_type
        query = f"?{urlencode(request.query)}" if request.query else ""
        url = URL(f"{self.access.url}{request.path}{query}", encoded=True)
        return await self._session.request(
            request.method,
            url,
            data=content,
            headers=headers,
            timeout=limits,
            allow_redirects=False,
        )


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, within a limit: whoever answers in place of the API server may send anything."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > RESPONSE_BYTES_MAX:
            _abort_stream(response)
            raise aiohttp.ClientPayloadError(
                f"the response is larger than {RESPONSE_BYTES_MAX >> 20} MiB"
            )
    return bytes(body)


def _abort_stream(response: aiohttp.ClientResponse) -> None:
    """Abort instead of closing: a TLS close would wait for the server."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def _session(access: ClusterAccess, sockets: SocketTracker) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=access.tls, limit=0, socket_factory=sockets),
        # Decompression costs more than the bandwidth that it saves within a cluster.
        headers={"Accept-Encoding": "identity", "User-Agent": "rota"},
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=access.uses_proxy and bool(getproxies()),
    )


def retry_delay_s(n_failures: int) -> float:
    """A delay that doubles with each failure up to a limit, with jitter."""
    longest = min(MAX_WAIT_S, FIRST_WAIT_S * 2 ** min(n_failures, MAX_DOUBLINGS))
    return random.uniform(longest / 2, longest)  # noqa: S311 - spreads retries


def _is_retryable(error: ApiError, request: ApiRequest) -> bool:
    if error.status == TOO_MANY or error.reason == "NotConnected":
        return True
    return error.is_transient and error.status != UNAUTHORIZED and request.method in SAFE_TO_REPEAT


def _unreachable(url: str, error: Exception) -> ApiError:
    is_unconnected = isinstance(error, aiohttp.ClientConnectorError)
    why = shown(str(error) or type(error).__name__, MESSAGE_CHARS)
    reason = "NotConnected" if is_unconnected else "Broken"
    hint = "check that the cluster runs and that the kubeconfig has its address"
    return ApiError(UNREACHABLE, reason, f"the cluster at {url} does not answer: {why}", hint)


class RequestLimiter:
    """Limits how many requests run at once, and knows whether others wait."""

    def __init__(self, n_slots: int) -> None:
        self._slots = asyncio.Semaphore(n_slots)
        self._n_waiting = 0
        self._no_waiters = asyncio.Event()
        self._no_waiters.set()

    async def __aenter__(self) -> None:
        if not self._slots.locked():
            await self._slots.acquire()
            return
        self._n_waiting += 1
        self._no_waiters.clear()
        try:
            await self._slots.acquire()
        finally:
            self._n_waiting -= 1
            if not self._n_waiting:
                self._no_waiters.set()

    async def __aexit__(self, *_: object) -> None:
        self._slots.release()

    async def wait_idle(self, *, timeout_s: float) -> None:
        """Wait until no request waits for a slot, or until the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._no_waiters.wait()


class SocketTracker:
    """Socket factory of the HTTP client. Remembers the sockets so that `close_all` can close
    them."""

    def __init__(self) -> None:
        self._sockets_made: WeakSet[socket.socket] = WeakSet()

    def __call__(self, address: Address) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self._sockets_made.add(made)
        return made

    async def close_all(self) -> None:
        """Shut down all open sockets without waiting for the server. Returns when the event loop
        has closed them."""
        for each in self._open():
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                while self._open():  # noqa: ASYNC110 - the loop has no event for it
                    await asyncio.sleep(POLL_S)

    def _open(self) -> list[socket.socket]:
        return [each for each in self._sockets_made if each.fileno() >= 0]
