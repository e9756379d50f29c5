"""Commands next to workers, and connections to their ports, each over its own WebSocket.

Authorization errors are answered before the socket is accepted, later errors as an `ExecStatus`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Query
from pydantic import TypeAdapter, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from rota.api.auth import CallerDep
from rota.api.responses import NameOrId, ServicesDep
from rota.daemon.jobs.exec_sessions import ExecTarget, bounded
from rota.engines.interface import WorkerSession
from rota.errors import RotaError, UserError
from rota.thread_pools import STORE
from rota.wire.codec import dump
from rota.wire.daemon import Problem
from rota.wire.exec import INPUT, WINDOW_BYTES, ExecRequest, ExecStatus, TerminalSize

router = APIRouter(prefix="/v1/jobs/{word}")
HIGHEST_PORT = 65535
FIRST_MESSAGE_TIMEOUT_S = 30.0
"""How long a client may take to send its `ExecRequest`."""


async def _target(
    word: NameOrId,
    services: ServicesDep,
    *,
    caller: CallerDep,
    worker: Annotated[int | None, Query(ge=0, le=100_000)] = None,
) -> ExecTarget:
    target = services.exec_sessions.target
    return await STORE.run(target, caller, word, worker=worker)


TargetDep = Annotated[ExecTarget, Depends(_target)]


@router.websocket("/exec")
async def execute(socket: WebSocket, services: ServicesDep, *, target: TargetDep) -> None:
    """Run a command next to a worker, with its account, folder, environment, GPUs and container."""
    async with _opened(socket):
        async with asyncio.timeout(FIRST_MESSAGE_TIMEOUT_S):
            request = parsed(ExecRequest, await socket.receive_text())
        async with services.exec_sessions.command(target, request) as session:
            await relay(socket, session)


@router.websocket("/forward")
async def forward(
    socket: WebSocket,
    services: ServicesDep,
    *,
    target: TargetDep,
    port: Annotated[int, Query(ge=1, le=HIGHEST_PORT)],
) -> None:
    """Connect to a port of 127.0.0.1 in the network of a worker."""
    async with _opened(socket), services.exec_sessions.connection(target, port) as session:
        await relay(socket, session)


@asynccontextmanager
async def _opened(socket: WebSocket) -> AsyncGenerator[None]:
    await socket.accept()
    try:
        yield
    except (WebSocketDisconnect, TimeoutError, KeyError):
        # The client is gone, silent, or sent no text: there is no one to answer.
        pass
    except RotaError as error:
        problem = Problem(error.code, error.message, error.hint)
        with suppress(WebSocketDisconnect):
            await socket.send_text(dump(ExecStatus(problem=problem)))
    with suppress(WebSocketDisconnect, RuntimeError):
        await socket.close()


MAX_QUEUED_CHUNKS = 4096
"""Limits chunks in addition to bytes: a client could send many chunks of one byte."""
T = TypeVar("T")


async def relay(socket: WebSocket, session: WorkerSession) -> None:
    """Relay until the session ends or the client disconnects."""
    relayed = _WebSocketRelay(socket, session)
    receiving = asyncio.ensure_future(relayed.receive_input())
    writing = asyncio.ensure_future(relayed.write_input())
    sending = asyncio.ensure_future(relayed.send_output())
    tasks = {receiving, writing, sending}
    try:
        # The writer may end early, or fail when the process closes its input.
        done, _ = await asyncio.wait({receiving, sending}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def parsed(kind: type[T], text: str) -> T:
    """Parse and validate a message of the client."""
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        what = error.errors()[0]["msg"]
        raise UserError(f"invalid {kind.__name__}: {what}") from None


class _WebSocketRelay:
    def __init__(self, socket: WebSocket, session: WorkerSession) -> None:
        self._socket = socket
        self._session = session
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(MAX_QUEUED_CHUNKS)
        self._n_held = 0

    async def receive_input(self) -> None:
        """Read all input at once: the window limits how much the client may send."""
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if message.get("text"):
                size = parsed(TerminalSize, message["text"])
                self._session.resize(*bounded(size.rows, size.columns))
            else:
                self._hold(message.get("bytes") or b"")

    def _hold(self, frame: bytes) -> None:
        if frame[:1] != bytes([INPUT]):
            raise UserError("a client may write only to stream 0")
        self._n_held += len(frame) - 1
        if self._n_held > WINDOW_BYTES or self._chunks.full():
            raise UserError("too much unread input", f"send at most {WINDOW_BYTES} bytes ahead")
        self._chunks.put_nowait(frame[1:])

    async def write_input(self) -> None:
        while chunk := await self._chunks.get():
            await self._session.write(chunk)
            self._n_held -= len(chunk)
            with suppress(WebSocketDisconnect):
                await self._socket.send_text(dump(ExecStatus(taken=len(chunk))))
        await self._session.finish()

    async def send_output(self) -> None:
        """Send all output, then the exit status."""
        copies = [asyncio.ensure_future(self._copy(each)) for each in self._session.outputs]
        try:
            left = await self._session.wait()
            await asyncio.gather(*copies)
        finally:
            for each in copies:
                each.cancel()
        await self._socket.send_text(dump(ExecStatus(exit_code=left.code, reason=left.reason)))

    async def _copy(self, output: int) -> None:
        stream = bytes([output])
        while chunk := await self._session.read(output):
            await self._socket.send_bytes(stream + chunk)
        await self._socket.send_bytes(stream)
