"""Responses without an end: a limited number per user, kept alive, and cleaned up on disconnect."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rota.config.limits import DEFAULT_LIMITS
from rota.daemon.access.authorization import Caller
from rota.daemon.errors import LimitError
from rota.wire.codec import dump
from rota.wire.jobs import LogPiece, StoryEntry

if TYPE_CHECKING:
    from rota.api.app import Services

EVENT_STREAM = "text/event-stream"
COMMENT = b": keepalive\n\n"
Chunk = str | bytes


class OpenStreams:
    """Counts the open streams of each user and limits their number: a stream has no time limit."""

    def __init__(self, most: int = DEFAULT_LIMITS.max_streams) -> None:
        self._most = most
        self._n_open = Counter[str]()

    @contextmanager
    def slot(self, user: str) -> Generator[None]:
        """Hold one of the user's slots. Check and count are one step, so that requests at the same
        time cannot exceed the limit."""
        if self._n_open[user] >= self._most:
            what = f"you have {self._most} open streams"
            raise LimitError(what, "close some of them", setting="max_streams")
        self._n_open[user] += 1
        try:
            yield
        finally:
            self._n_open[user] -= 1

    def n_open(self, user: str) -> int:
        return self._n_open[user]


class LimitedStream(StreamingResponse):
    """A stream that holds a slot of its user from before the first byte until it ends, however it
    ends. With `keepalive_s`, it sends a comment at this interval."""

    def __init__(
        self,
        chunks: AsyncGenerator[Chunk],
        *,
        services: Services,
        user: str,
        media_type: str,
        keepalive_s: float | None = None,
    ) -> None:
        super().__init__(chunks, media_type=media_type)
        self._chunks = chunks
        self._streams, self._queue = services.streams, services.queue
        self._user = user
        self._keepalive_s = keepalive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.slot(self._user):
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        comments = asyncio.ensure_future(self._send_comments(send))
        try:
            async with aclosing(self._chunks) as chunks:
                async for chunk in chunks:
                    await self._queue.turn(self._user)
                    await _send_chunk(send, chunk if isinstance(chunk, bytes) else chunk.encode())
        finally:
            comments.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_comments(self, send: Send) -> None:
        while self._keepalive_s is not None:
            await asyncio.sleep(self._keepalive_s)
            # Each chunk is a whole event, so a comment never splits one.
            await _send_chunk(send, COMMENT)


async def _send_chunk(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})


def event_stream(
    events: AsyncGenerator[str], *, services: Services, caller: Caller
) -> LimitedStream:
    """Server-sent events, with comments."""
    return LimitedStream(
        events,
        services=services,
        user=caller.user,
        media_type=EVENT_STREAM,
        keepalive_s=services.timeouts.keepalive_s,
    )


def byte_stream(
    chunks: AsyncGenerator[bytes], *, services: Services, caller: Caller
) -> LimitedStream:
    """Plain bytes, which cannot contain comments."""
    media_type = "application/octet-stream"
    return LimitedStream(chunks, services=services, user=caller.user, media_type=media_type)


def server_sent_event(kind: str, value: StoryEntry | LogPiece, *, number: int | None = None) -> str:
    identity = "" if number is None else f"id: {number}\n"
    return f"{identity}event: {kind}\ndata: {dump(value)}\n\n"


def stream_position(number: int) -> str:
    """An id without an event: a client that reconnects continues there."""
    return f"id: {number}\n\n"
