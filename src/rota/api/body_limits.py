"""Bounds on requests, before anything looks into them: who sends, how much, for how long."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import HTTPConnection

from rota.api.auth import Doorkeeper
from rota.api.problems import problem_response, told
from rota.api.server import Patience
from rota.errors import RotaError
from rota.wire.box import Problem

BODY_BYTES_MAX = 16 * 1024**2
BODIES_BYTES_MAX = 4 * BODY_BYTES_MAX
"""Of all bodies that one user is sending at a time."""

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
TOO_SLOW = Problem("too_slow", "the body did not come in time", "try again")


class _BodyError(Exception):
    def __init__(self, problem: Problem, status: int) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.status = status


class _GoneError(Exception):
    """The sender hung up before the end of the body: nobody asked for anything."""


class Bounded:
    """Reads the body of a request, up to a size and for a time, and then lets the app have it.
    Nothing is read for a stranger. Paths that stream what they are sent have their own bounds."""

    def __init__(
        self, app: App, *, doorkeeper: Doorkeeper, patience: Patience, streams: str
    ) -> None:
        self._app = app
        self._doorkeeper = doorkeeper
        self._patience = patience
        self._streams = streams
        self._n_bytes: Counter[str] = Counter()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._doorkeeper.identify(HTTPConnection(scope))
            scope["state"]["caller"] = caller
            if not scope["path"].startswith(self._streams):
                receive = _replay(await self._body(scope, receive, user=caller.user), receive)
        except RotaError as error:
            await told(error)(scope, receive, send)
        except _BodyError as error:
            await problem_response(error.problem, status=error.status)(scope, receive, send)
        except _GoneError:
            return
        else:
            await self._app(scope, receive, send)

    async def _body(self, scope: Message, receive: Receive, *, user: str) -> bytes:
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if int(declared) > BODY_BYTES_MAX:
            raise _BodyError(TOO_LARGE, 413)
        body = bytearray()
        try:
            async with asyncio.timeout(self._patience.body_s):
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
        """Adds the next piece; whether it was not the last."""
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _GoneError
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
