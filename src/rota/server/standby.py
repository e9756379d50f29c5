"""The HTTP server of a daemon on standby: healthy, but rejects all requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.listeners import RunningServer, TcpAddress, tcp_socket
from rota.api.responses import json_response
from rota.wire.daemon import Problem

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


class StandbyReason(Protocol):
    def why(self) -> str:
        """Why this daemon does not lead."""
        ...


@asynccontextmanager
async def serve_standby(
    listen: TcpAddress | None, candidate: StandbyReason
) -> AsyncGenerator[None]:
    """Serves on the TCP listener, where the cluster probes; the Unix sockets stay closed."""
    if listen is None:
        yield
        return
    config = uvicorn.Config(
        _app(candidate),
        ssl_certfile=listen.tls and listen.tls.certificate,
        ssl_keyfile=listen.tls and listen.tls.key,
        log_config=None,
        lifespan="off",
        access_log=False,
    )
    running = RunningServer(uvicorn.Server(config), [tcp_socket(listen.host, listen.port)])
    try:
        await running.wait_until_started()
        yield
    finally:
        await running.stop()


def _app(candidate: StandbyReason) -> Starlette:
    async def is_alive(_: Request) -> Response:
        return json_response({"status": "ok"})

    async def reject(_: Request) -> Response:
        problem = Problem("standby", f"this daemon is on standby: {candidate.why()}")
        return json_response(problem, status=503)

    return Starlette(
        routes=[
            Route("/healthz", is_alive),
            Route("/{path:path}", reject, methods=METHODS),
        ]
    )
