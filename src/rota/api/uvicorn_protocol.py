"""Connections: who is at the other end of a Unix socket, how long nobody may say nothing, and how
many may be there at once."""

from __future__ import annotations

import asyncio
import functools
import resource
import socket
import struct
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from rota.wire.box import Problem
from rota.wire.json import dump
from rota.wire.sessions import FRAME_BYTES_MAX

HEAD_BYTES_MAX = 64 * 1024
"""Of a head, of trailers, of anything that is not the body."""
DRAIN_BYTES_MAX = 256 * 1024**2
"""What is read and thrown away of a body that was refused, so that its sender hears why."""
LINGER_S = 2.0
CONNECTIONS_MAX = 2000
_CREDENTIALS = struct.Struct("3i")

BROKEN = Problem("bad_request", "that is no HTTP request", "see /openapi.json for what there is")
HEAD_TOO_LARGE = Problem(
    "too_large", f"the head of the request is larger than {HEAD_BYTES_MAX // 1024} KiB", "cut it"
)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client may take, in seconds."""

    head_s: float = 30.0
    """For the head of a request, from its first byte; for the first byte of the first, too."""
    body_s: float = 30.0
    idle_s: float = 60.0
    """Between two requests; and to read the last of an answer."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom the kernel names as the other end of a Unix socket."""

    pid: int
    uid: int
    gid: int


class Crowd:
    """All connections. When they are too many, the one that has asked for nothing for longest has
    to go: whoever comes with a question is served however many come without one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._waiting: dict[PeerProtocol, None] = {}

    def enter(self, one: PeerProtocol) -> None:
        self._count += 1
        self._waiting[one] = None
        if self._count > self._most:
            next(iter(self._waiting)).hang_up()

    def ask(self, one: PeerProtocol) -> None:
        self._waiting.pop(one, None)

    def wait(self, one: PeerProtocol) -> None:
        self._waiting[one] = None

    def leave(self, one: PeerProtocol) -> None:
        self._count -= 1
        self._waiting.pop(one, None)


class PeerProtocol(HttpToolsProtocol):
    """HTTP that knows its peer, and hangs up on those who connect and do not ask.

    One deadline at a time: for a head while one is awaited, for the next request after an answer.
    None while a request is answered, which may take as long as a stream does; the body of a
    request is the app's to wait for.
    """

    def __init__(self, *args: Any, patience: Patience, crowd: Crowd, **more: Any) -> None:
        super().__init__(*args, **more)
        self._patience = patience
        self._crowd = crowd
        self._deadline: asyncio.TimerHandle | None = None
        self._n_bytes_of_head = 0
        self._n_bytes_drained = 0
        self._answering: RequestResponseCycle | None = None
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        peer = peer_of(connection)
        if peer is not None:
            self.app_state = {**self.app_state, "peer": peer}
        elif connection is not None:
            _keep_alive(connection)
        self._allow(self._patience.head_s)
        self._crowd.enter(self)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._n_bytes_of_head += len(data)
        super().data_received(data)
        if self._n_bytes_of_head > HEAD_BYTES_MAX and not self._is_refused:
            self._refuse(HEAD_TOO_LARGE, status=b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        self._n_bytes_of_head = self._n_bytes_drained = 0
        self._allow(self._patience.head_s)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._n_bytes_of_head = 0
        self._allow(None)
        self._crowd.ask(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._n_bytes_of_head = 0
        if self.cycle.response_complete:
            self._n_bytes_drained += len(body)
            if self._n_bytes_drained > DRAIN_BYTES_MAX:
                self.hang_up()
        super().on_body(body)

    def on_response_complete(self) -> None:
        has_another = bool(self.pipeline)
        super().on_response_complete()
        if not has_another and not self.transport.is_closing():
            self._allow(self._patience.idle_s)
            self._crowd.wait(self)

    def handle_websocket_upgrade(self) -> None:
        self._crowd.leave(self)
        super().handle_websocket_upgrade()

    def connection_lost(self, exc: Exception | None) -> None:
        self._allow(None)
        self._crowd.leave(self)
        self._abandon()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's own words are no JSON
        self._refuse(BROKEN, status=b"400 Bad Request")

    def hang_up(self) -> None:
        """At once: who does not read the rest of an answer is not waited for."""
        self._abandon()
        self.transport.abort()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _abandon(self) -> None:
        """Nobody hears the answer that is being made. (Of pipelined requests, uvicorn would tell
        the newest only, which is not the one that is answered.)"""
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def _allow(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.hang_up)

    def _refuse(self, problem: Problem, *, status: bytes) -> None:
        """An answer to what is no request. While another is owed, there is none: whoever gets this
        one would take it for that."""
        if self.cycle and not self.cycle.response_complete and not self._is_reading_only_body():
            self.hang_up()
            return
        body = dump(problem).encode()
        length = b"content-length: %d\r\n" % len(body)
        kind = b"content-type: application/json\r\nconnection: close\r\n"
        self._abandon()
        self.transport.write(b"HTTP/1.1 %s\r\n%s%s\r\n%s" % (status, kind, length, body))
        # What is still on its way here is not read as a request, but it is read: a connection that
        # is closed before that takes the answer with it.
        self.transport.write_eof()
        self._is_refused = True
        self._allow(LINGER_S)

    def _is_reading_only_body(self) -> bool:
        return self.cycle.more_body and not self.cycle.response_started and not self.pipeline


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


def server(app: Any, *, patience: Patience) -> Server:
    protocol: Any = functools.partial(
        PeerProtocol, patience=patience, crowd=Crowd(_room_for_connections())
    )
    return Server(
        uvicorn.Config(
            app,
            http=protocol,
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=round(patience.idle_s) + 1,
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


def _room_for_connections() -> int:
    """As many as are allowed; but half of all files that we may open are for everything else."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS_MAX
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, soft // 2)
