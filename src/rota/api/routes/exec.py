"""Between a WebSocket and a session, both ways at once, neither faster than it is taken."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from rota.daemon.visits import bounded
from rota.engines.base import Session
from rota.errors import UserError
from rota.wire.json import dump
from rota.wire.sessions import INPUT, WINDOW_BYTES, Note, Size

MOST_CHUNKS = 4096
"""That may wait to be taken: chunks of one byte are no way around the window."""
T = TypeVar("T")


async def carry(socket: WebSocket, session: Session) -> None:
    """Until the session is over, or the client is gone."""
    carrier = _Carrier(socket, session)
    hearing = asyncio.ensure_future(carrier.hear())
    feeding = asyncio.ensure_future(carrier.feed())
    saying = asyncio.ensure_future(carrier.say())
    tasks = {hearing, feeding, saying}
    try:
        # What feeds may be done long before, or fail with what it fed.
        done, _ = await asyncio.wait({hearing, saying}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def parsed(kind: type[T], text: str) -> T:
    """A message of the client's, looked at closely."""
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        what = error.errors()[0]["msg"]
        raise UserError(f"that is no {kind.__name__.lower()}: {what}") from None


class _Carrier:
    def __init__(self, socket: WebSocket, session: Session) -> None:
        self._socket = socket
        self._session = session
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(MOST_CHUNKS)
        self._n_held = 0

    async def hear(self) -> None:
        """All that the client says, at once: how much it may say is bounded by the window."""
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if message.get("text"):
                size = parsed(Size, message["text"])
                self._session.resize(*bounded(size.rows, size.columns))
            else:
                self._hold(message.get("bytes") or b"")

    def _hold(self, frame: bytes) -> None:
        if frame[:1] != bytes([INPUT]):
            raise UserError("a client may write to stream 0 only")
        self._n_held += len(frame) - 1
        if self._n_held > WINDOW_BYTES or self._chunks.full():
            raise UserError("more input than was taken", f"send {WINDOW_BYTES} bytes at most")
        self._chunks.put_nowait(frame[1:])

    async def feed(self) -> None:
        while chunk := await self._chunks.get():
            await self._session.write(chunk)
            self._n_held -= len(chunk)
            with suppress(WebSocketDisconnect):
                await self._socket.send_text(dump(Note(taken=len(chunk))))
        await self._session.finish()

    async def say(self) -> None:
        """All output, then the end."""
        copies = [asyncio.ensure_future(self._copy(each)) for each in self._session.outputs]
        try:
            left = await self._session.left()
            await asyncio.gather(*copies)
        finally:
            for each in copies:
                each.cancel()
        await self._socket.send_text(dump(Note(exit_code=left.code, reason=left.reason)))

    async def _copy(self, output: int) -> None:
        stream = bytes([output])
        while chunk := await self._session.read(output):
            await self._socket.send_bytes(stream + chunk)
        await self._socket.send_bytes(stream)
