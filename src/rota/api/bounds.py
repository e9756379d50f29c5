"""Bounds on requests, before anything looks into them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from rota.api.problems import problem_response
from rota.wire.box import Problem

BODY_BYTES_MAX = 16 * 1024**2
BODY_S = 30.0
"""How long a client may take to send a body."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

TOO_LARGE = Problem(
    "too_large",
    f"the body is larger than {BODY_BYTES_MAX // 1024**2} MiB",
    "send fewer jobs at once, or ship files with --ship",
)
TOO_SLOW = Problem("too_slow", f"the body did not come within {BODY_S:g} s", "try again")


class Bounded:
    """Reads the body of a request, up to a size and for a time, and then lets the app have it.
    Paths that stream what they are sent have their own bounds."""

    def __init__(self, app: App, *, streams: str) -> None:
        self._app = app
        self._streams = streams

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        is_bodiless = scope["type"] != "http" or scope["method"] in ("GET", "HEAD")
        if is_bodiless or scope["path"].startswith(self._streams):
            await self._app(scope, receive, send)
            return
        try:
            body = await asyncio.wait_for(_read(scope, receive), BODY_S)
        except TimeoutError:
            await problem_response(TOO_SLOW, status=408)(scope, receive, send)
            return
        if body is None:
            await problem_response(TOO_LARGE, status=413)(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)


async def _read(scope: Message, receive: Receive) -> bytes | None:
    """The whole body; None if it is too large."""
    declared = dict(scope["headers"]).get(b"content-length", b"0")
    if declared.isdigit() and int(declared) > BODY_BYTES_MAX:
        return None
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > BODY_BYTES_MAX:
            return None
        more = message.get("more_body", False)
    return b"".join(chunks)


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replayed() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
