"""Connections: who is at the other end of a Unix socket, and how long nobody may say nothing."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rota.wire.sessions import FRAME_BYTES_MAX

IDLE_S = 60
REQUEST_S = 30.0
"""How long a client may take to send the head of a request."""
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom the kernel names as the other end of a Unix socket."""

    pid: int
    uid: int
    gid: int


class PeerProtocol(HttpToolsProtocol):
    """HTTP that knows its peer, and hangs up on those who connect and do not ask."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        peer = peer_of(connection)
        if peer is not None:
            self.app_state = {**self.app_state, "peer": peer}
        elif connection is not None:
            _keep_alive(connection)
        self._deadline = self.loop.call_later(REQUEST_S, self._hang_up)

    def on_message_begin(self) -> None:
        self._deadline.cancel()
        self._deadline = self.loop.call_later(REQUEST_S, self._hang_up)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._deadline.cancel()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def _hang_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


def peer_of(connection: Any) -> Peer | None:
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Peer(*_CREDENTIALS.unpack(raw))


def _keep_alive(connection: Any) -> None:
    """A machine that is gone without a word is noticed after two minutes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


class Server(uvicorn.Server):
    """Leaves signals to the daemon, which has more than one server."""

    def capture_signals(self) -> Any:  # type: ignore[override]
        return nullcontext()


def server(app: Any) -> Server:
    return Server(
        uvicorn.Config(
            app,
            http=PeerProtocol,
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=1,
            server_header=False,
            date_header=False,
            backlog=1024,
            ws="websockets-sansio",
            ws_max_size=FRAME_BYTES_MAX,
            # Whoever reads slowly answers slowly, and may still be there: the kernel's own question
            # whether the other end is alive needs no answer from the program.
            ws_ping_interval=None,
            ws_per_message_deflate=False,
        )
    )
