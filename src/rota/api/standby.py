"""What a daemon that does not command answers: that it is alive, and that it takes no work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from rota.api.sockets import started, tcp_socket
from rota.wire.box import Problem
from rota.wire.json import dump

Send = Callable[[dict[str, Any]], Awaitable[None]]


@asynccontextmanager
async def standing_by(
    listen: tuple[str, int] | None, *, holder: Callable[[], str]
) -> AsyncGenerator[None]:
    """On the TCP door, where the cluster asks; nobody else is told of it."""
    if listen is None:
        yield
        return

    async def app(scope: dict[str, Any], _receive: object, send: Send) -> None:
        if scope["type"] == "http":
            await _answer(scope["path"], holder(), send)

    config = uvicorn.Config(app, log_config=None, lifespan="off", access_log=False)
    door = uvicorn.Server(config)
    running = asyncio.ensure_future(door.serve(sockets=[tcp_socket(*listen)]))
    try:
        await started(door, running)
        yield
    finally:
        door.should_exit = True
        await running


async def _answer(path: str, holder: str, send: Send) -> None:
    is_alive = path == "/healthz"
    problem = Problem("standby", f"this daemon waits; {holder or 'another'} commands", "ask that")
    body = b'{"status":"ok"}' if is_alive else dump(problem).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    status = 200 if is_alive else 503
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
