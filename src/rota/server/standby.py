"""What a daemon that does not command answers: that it is alive, and that it takes no work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.answers import answer
from rota.api.sockets import started, tcp_socket
from rota.wire.box import Problem

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@asynccontextmanager
async def standing_by(
    listen: tuple[str, int] | None, *, why: Callable[[], str]
) -> AsyncGenerator[None]:
    """On the TCP door, where the cluster asks; nobody else is told of it. `why` says what for."""
    if listen is None:
        yield
        return
    config = uvicorn.Config(_app(why), log_config=None, lifespan="off", access_log=False)
    door = uvicorn.Server(config)
    running = asyncio.ensure_future(door.serve(sockets=[tcp_socket(*listen)]))
    try:
        await started(door, running)
        yield
    finally:
        door.should_exit = True
        await running


def _app(why: Callable[[], str]) -> Starlette:
    async def is_alive(_: Request) -> Response:
        return answer({"status": "ok"})

    async def waits(_: Request) -> Response:
        return answer(Problem("standby", f"this daemon waits; {why()}"), status=503)

    return Starlette(
        routes=[
            Route("/healthz", is_alive),
            Route("/{path:path}", waits, methods=METHODS),
        ]
    )
