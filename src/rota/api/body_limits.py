"""Authenticates requests with a body, and limits size and time of the body, before any parsing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import HTTPConnection

from rota.api.auth import Authenticator
from rota.api.errors import error_response, problem_response
from rota.api.uvicorn_protocol import ClientTimeouts
from rota.errors import RotaError
from rota.wire.daemon import Problem

BODY_BYTES_MAX = 16 * 1024**2
BODIES_BYTES_MAX = 4 * BODY_BYTES_MAX
"""All bodies that one user sends at the same time."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

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


class BodyLimitMiddleware:
    """Reads the body within the limits, then passes it to the app. Reads nothing for a client that
    is not authenticated. Paths under `streams` limit their bodies themselves."""

    def __init__(
        self, app: App, *, authenticator: Authenticator, timeouts: ClientTimeouts, streams: str
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._timeouts = timeouts
        self._streams = streams
        self._n_bytes: Counter[str] = Counter()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._authenticator.identify(HTTPConnection(scope))
            scope["state"]["caller"] = caller
            if not scope["path"].startswith(self._streams):
                receive = _replay(await self._body(scope, receive, user=caller.user), receive)
        except RotaError as error:
            await error_response(error)(scope, receive, send)
        except _BodyError as error:
            await problem_response(error.problem, status=error.status)(scope, receive, send)
        except _ClientDisconnectedError:
            return
        else:
            await self._app(scope, receive, send)

    async def _body(self, scope: Message, receive: Receive, *, user: str) -> bytes:
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if int(declared) > BODY_BYTES_MAX:
            raise _BodyError(TOO_LARGE, 413)
        body = bytearray()
        try:
            async with asyncio.timeout(self._timeouts.body_s):
                while await self._more(body, receive, user=user):
                    pass
        except TimeoutError:
            raise _BodyError(TOO_SLOW, 408) from None
        finally:
            self._n_bytes[user] -= len(body)
            if not self._n_bytes[user]:
                del self._n_bytes[user]
        return bytes(body)

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


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replayed() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
