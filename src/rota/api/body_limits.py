"""Authenticates requests, limits the size and time of their bodies, and gives each its turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import HTTPConnection

from rota.api.auth import Authenticator
from rota.api.errors import error_response, problem_response
from rota.api.fair_queue import FairQueue
from rota.api.uvicorn_protocol import ClientTimeouts
from rota.daemon.access.authorization import Caller, job_scope
from rota.errors import RotaError
from rota.wire.daemon import Problem

BODY_BYTES_MAX = 16 * 1024**2
BODIES_BYTES_MAX = 2 * BODY_BYTES_MAX
"""All bodies of one user that are not answered yet."""
PUBLIC = frozenset({"/healthz", "/readyz"})
"""Paths of probes, which need no caller."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Coroutine[Any, Any, None]]

TOO_LARGE = Problem(
    "too_large",
    f"the body is larger than {BODY_BYTES_MAX // 1024**2} MiB",
    "send fewer jobs at once, or ship files with --ship",
)
TOO_MUCH = Problem(
    "too_many",
    f"you are sending more than {BODIES_BYTES_MAX // 1024**2} MiB at once",
    "send one request after the other",
)
TOO_SLOW = Problem("too_slow", "the body did not arrive in time", "try again")


class _BodyError(Exception):
    def __init__(self, problem: Problem, status: int) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.status = status


class _ClientDisconnectedError(Exception):
    """The client disconnected before the end of the body, so there is no request."""


class RequestLimitMiddleware:
    """Finds the caller, reads the body within the limits, waits for the caller's turn, and passes
    the request to the app. Reads nothing for a client that is not authenticated. Paths under
    `streams` limit their bodies themselves."""

    def __init__(
        self,
        app: App,
        *,
        authenticator: Authenticator,
        timeouts: ClientTimeouts,
        queue: FairQueue,
        streams: str,
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._timeouts = timeouts
        self._queue = queue
        self._streams = streams
        self._n_bytes: Counter[str] = Counter()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        has_body = scope["type"] == "http" and scope["method"] not in ("GET", "HEAD")
        try:
            caller = await self._caller(scope, is_required=has_body)
            user = caller.user if caller else _holder_of(scope)
            await self._queue.request(user, rate_key=_rate_key(caller, user))
            if not has_body or scope["path"].startswith(self._streams):
                await self._queue.run(user, self._app(scope, receive, send))
                return
            async with self._body(scope, receive, user=user) as body:
                await self._queue.run(user, self._app(scope, _replay(body, receive), send))
        except RotaError as error:
            await error_response(error)(scope, receive, send)
        except _BodyError as error:
            await problem_response(error.problem, status=error.status)(scope, receive, send)
        except _ClientDisconnectedError:
            return

    async def _caller(self, scope: Message, *, is_required: bool) -> Caller | None:
        """None: the client is not authenticated. Some routes answer such a client; the others find
        the error themselves."""
        if scope["path"] in PUBLIC:
            return None
        try:
            caller = await self._authenticator.identify(HTTPConnection(scope))
        except RotaError:
            if is_required:
                raise
            return None
        scope["state"]["caller"] = caller
        if (connection := scope["state"].get("connection")) is not None:
            connection.assign(caller.user)
        return caller

    @asynccontextmanager
    async def _body(self, scope: Message, receive: Receive, *, user: str) -> AsyncGenerator[bytes]:
        """The body counts for its user until the request has its answer."""
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if int(declared) > BODY_BYTES_MAX:
            raise _BodyError(TOO_LARGE, 413)
        body = bytearray()
        try:
            await self._read(body, receive, user=user)
            yield bytes(body)
        finally:
            self._n_bytes[user] -= len(body)
            if not self._n_bytes[user]:
                del self._n_bytes[user]

    async def _read(self, body: bytearray, receive: Receive, *, user: str) -> None:
        try:
            async with asyncio.timeout(self._timeouts.body_s):
                while await self._more(body, receive, user=user):
                    pass
        except TimeoutError:
            raise _BodyError(TOO_SLOW, 408) from None

    async def _more(self, body: bytearray, receive: Receive, *, user: str) -> bool:
        """Read the next piece. Returns whether more pieces follow."""
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientDisconnectedError
        piece: bytes = message.get("body", b"")
        body += piece
        self._n_bytes[user] += len(piece)
        if len(body) > BODY_BYTES_MAX:
            raise _BodyError(TOO_LARGE, 413)
        if self._n_bytes[user] > BODIES_BYTES_MAX:
            raise _BodyError(TOO_MUCH, 429)
        return message.get("more_body", False)


def _holder_of(scope: Message) -> str:
    """Who counts for the request of a client that is not authenticated."""
    connection = scope["state"].get("connection")
    return connection.holder if connection is not None else ""


def _rate_key(caller: Caller | None, user: str) -> str:
    """Each worker of a job reports every second: the requests of each job count apart."""
    job_id = job_scope(caller) if caller else None
    return user if job_id is None else f"{user} {job_id}"


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replayed() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
