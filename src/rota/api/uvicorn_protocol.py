"""HTTP connections: peers of Unix sockets, timeouts of slow clients, limit of connections."""

from __future__ import annotations

import asyncio
import functools
import resource
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from rota.api.listeners import TlsFiles
from rota.api.peer import peer_of
from rota.wire.codec import dump
from rota.wire.daemon import Problem
from rota.wire.exec import FRAME_BYTES_MAX
from rota.wire.streams import KEEPALIVE_S, enable_tcp_keepalive

HEAD_BYTES_MAX = 64 * 1024
"""Limit of headers, trailers and everything else that is not the body."""
DRAIN_BYTES_MAX = 256 * 1024**2
"""Bytes of a rejected body that are read and discarded, so that the client gets the answer."""
LINGER_S = 2.0
CONNECTIONS_MAX = 2000

BROKEN = Problem("bad_request", "malformed HTTP request", "/openapi.json describes all requests")
HEAD_TOO_LARGE = Problem(
    "too_large", f"the headers are larger than {HEAD_BYTES_MAX // 1024} KiB", "send fewer headers"
)


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    """How long a client may take, and how often it hears from the daemon, in seconds."""

    head_s: float = 30.0
    """For the headers, from their first byte; also for the first byte on a new connection."""
    body_s: float = 30.0
    idle_s: float = 60.0
    """Between two requests, and to read the rest of an answer."""
    keepalive_s: float = KEEPALIVE_S
    """Between two comments on an event stream."""


class ConnectionLimiter:
    """Counts connections. Above the limit, the connection that has been idle for longest is closed:
    idle connections never keep out a client with a request."""

    def __init__(self, most: int | None = None) -> None:
        self._most = _max_connections() if most is None else most
        self._count = 0
        self._waiting: dict[PeerProtocol, None] = {}

    def add(self, one: PeerProtocol) -> None:
        self._count += 1
        self._waiting[one] = None
        if self._count > self._most:
            next(iter(self._waiting)).hang_up()

    def mark_active(self, one: PeerProtocol) -> None:
        self._waiting.pop(one, None)

    def mark_idle(self, one: PeerProtocol) -> None:
        self._waiting[one] = None

    def remove(self, one: PeerProtocol) -> None:
        self._count -= 1
        self._waiting.pop(one, None)


class PeerProtocol(HttpToolsProtocol):
    """HTTP that knows its peer, and closes connections without a request.

    There is one deadline at a time: for the headers of a request, then for the next request after
    an answer. There is no deadline during an answer, which may be a stream. The app itself limits
    the time of a body.
    """

    def __init__(
        self, *args: Any, timeouts: ClientTimeouts, limiter: ConnectionLimiter, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._timeouts = timeouts
        self._limiter = limiter
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
            enable_tcp_keepalive(connection)
        self._allow(self._timeouts.head_s)
        self._limiter.add(self)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._n_bytes_of_head += len(data)
        super().data_received(data)
        if self._n_bytes_of_head > HEAD_BYTES_MAX and not self._is_refused:
            self._refuse(HEAD_TOO_LARGE, status=b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        self._n_bytes_of_head = self._n_bytes_drained = 0
        self._allow(self._timeouts.head_s)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._n_bytes_of_head = 0
        self._allow(None)
        self._limiter.mark_active(self)
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
            self._allow(self._timeouts.idle_s)
            self._limiter.mark_idle(self)

    def handle_websocket_upgrade(self) -> None:
        self._limiter.remove(self)
        super().handle_websocket_upgrade()

    def connection_lost(self, exc: Exception | None) -> None:
        self._allow(None)
        self._limiter.remove(self)
        self._abandon()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's message is not JSON
        self._refuse(BROKEN, status=b"400 Bad Request")

    def hang_up(self) -> None:
        """Close at once, also if the client has not read the whole answer."""
        self._abandon()
        self.transport.abort()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _abandon(self) -> None:
        """Tell the running app that its client is gone. With pipelined requests, uvicorn would tell
        only the newest request, which is not the one that is answered."""
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def _allow(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.hang_up)

    def _refuse(self, problem: Problem, *, status: bytes) -> None:
        """Answer malformed data. While the answer to a request is pending, only close: the client
        would take this answer for the pending one."""
        if self.cycle and not self.cycle.response_complete and not self._is_reading_only_body():
            self.hang_up()
            return
        body = dump(problem).encode()
        length = b"content-length: %d\r\n" % len(body)
        kind = b"content-type: application/json\r\nconnection: close\r\n"
        self._abandon()
        self.transport.write(b"HTTP/1.1 %s\r\n%s%s\r\n%s" % (status, kind, length, body))
        # Read and discard what the client still sends: closing earlier would lose the answer.
        if self.transport.can_write_eof():  # TLS connections cannot.
            self.transport.write_eof()
        self._is_refused = True
        self._allow(LINGER_S)

    def _is_reading_only_body(self) -> bool:
        return self.cycle.more_body and not self.cycle.response_started and not self.pipeline


class Server(uvicorn.Server):
    """Leaves signals to the daemon."""

    def capture_signals(self) -> Any:  # type: ignore[override]
        return nullcontext()


def create_server(
    app: Any, *, timeouts: ClientTimeouts, limiter: ConnectionLimiter, tls: TlsFiles | None = None
) -> Server:
    """Servers of one daemon share the `limiter`."""
    protocol: Any = functools.partial(PeerProtocol, timeouts=timeouts, limiter=limiter)
    return Server(
        uvicorn.Config(
            app,
            http=protocol,
            ssl_certfile=tls and tls.certificate,
            ssl_keyfile=tls and tls.key,
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=round(timeouts.idle_s) + 1,
            timeout_graceful_shutdown=1,
            server_header=False,
            date_header=False,
            backlog=1024,
            ws="websockets-sansio",
            ws_max_size=FRAME_BYTES_MAX,
            # A slow reader would answer pings late. TCP keep-alive detects dead peers instead.
            ws_ping_interval=None,
            ws_per_message_deflate=False,
        )
    )


def _max_connections() -> int:
    """The limit of connections: at most half of the files that the process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS_MAX
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, soft // 2)
