"""HTTP connections and WebSockets: peers of Unix sockets, timeouts of slow and silent clients."""

from __future__ import annotations

import asyncio
import functools
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from rota.api.connection_limiter import ConnectionLimiter
from rota.api.listeners import TlsFiles
from rota.api.peer import Peer, peer_of
from rota.wire.codec import dump
from rota.wire.daemon import Problem
from rota.wire.exec import FRAME_BYTES_MAX
from rota.wire.streams import KEEPALIVE_S, enable_tcp_keepalive

HEAD_BYTES_MAX = 64 * 1024
"""Limit of headers, trailers and everything else that is not the body."""
DRAIN_BYTES_MAX = 256 * 1024**2
"""Bytes of a rejected body that are read and discarded, so that the client gets the answer."""
LINGER_S = 2.0
PIPELINED_MAX = 64
"""Requests that a client may send ahead of the answers. The protocol reads all that arrive at
once."""

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
    read_s: float = 60.0
    """To read a part of an answer or a stream that is too large for the buffers."""


class PeerProtocol(HttpToolsProtocol):
    """HTTP that knows its peer, and closes connections without a request.

    There is one deadline at a time: for the headers of a request, then for the next request after
    an answer. An answer may be a stream, so only a client that does not read has a deadline then.
    The app itself limits the time of a body. A connection that becomes a WebSocket stays counted.
    """

    def __init__(
        self, *args: Any, timeouts: ClientTimeouts, limiter: ConnectionLimiter, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._timeouts = timeouts
        self._limiter = limiter
        self._deadline: asyncio.TimerHandle | None = None
        self._read_deadline: asyncio.TimerHandle | None = None
        self._holder = ""
        self.ws_protocol_class: Any = functools.partial(LimitedWebSocket, connection=self)
        self._n_bytes_of_head = 0
        self._n_bytes_drained = 0
        self._answering: RequestResponseCycle | None = None
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        peer = peer_of(connection)
        self.app_state = {**self.app_state, "connection": self}
        if peer is not None:
            self.app_state["peer"] = peer
        elif connection is not None:
            enable_tcp_keepalive(connection)
        self._holder = _holder_of(peer, self.client)
        self._allow(self._timeouts.head_s)
        self._limiter.add(self, self._holder)

    @property
    def holder(self) -> str:
        """The user of the last request; before it, the uid or the host of the client."""
        return self._holder

    def assign(self, user: str) -> None:
        """Count the connection as one of this user."""
        self._holder = user
        self._limiter.assign(self, user)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._n_bytes_of_head += len(data)
        super().data_received(data)
        if self._n_bytes_of_head > HEAD_BYTES_MAX and not self._is_refused:
            self._refuse(HEAD_TOO_LARGE, status=b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINED_MAX:
            raise ValueError("too many requests ahead of the answers")
        self._n_bytes_of_head = self._n_bytes_drained = 0
        self._allow(self._timeouts.head_s)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._n_bytes_of_head = 0
        self._allow(None)
        self._limiter.mark_busy(self)
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

    def pause_writing(self) -> None:
        super().pause_writing()
        self.await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.end_wait_for_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        self.release()
        self._abandon()
        super().connection_lost(exc)

    def await_reader(self) -> None:
        """The buffers are full: close the connection if the client does not read in time."""
        self.end_wait_for_reader()
        self._read_deadline = self.loop.call_later(self._timeouts.read_s, self.hang_up)

    def end_wait_for_reader(self) -> None:
        if self._read_deadline is not None:
            self._read_deadline.cancel()
            self._read_deadline = None

    def release(self) -> None:
        """The connection is lost."""
        self._allow(None)
        self.end_wait_for_reader()
        self._limiter.remove(self)

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


class LimitedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket that counts as the HTTP connection that it was, with its deadline for reading.

    It may be silent for days, as a shell is. The route limits the time until its first message."""

    def __init__(self, *args: Any, connection: PeerProtocol, **more: Any) -> None:
        super().__init__(*args, **more)
        self._connection = connection

    def pause_writing(self) -> None:
        super().pause_writing()
        self._connection.await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._connection.end_wait_for_reader()

    def handle_parser_exception(self) -> None:
        """The base class can answer invalid data only after the handshake."""
        if self.conn.close_sent is None:
            self._connection.hang_up()
        else:
            super().handle_parser_exception()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.release()
        super().connection_lost(exc)


def _holder_of(peer: Peer | None, client: tuple[str, int] | None) -> str:
    """Who holds a connection without an authenticated request. No user has such a name."""
    if peer is not None:
        return f"uid {peer.uid}"
    return f"host {client[0]}" if client else "host"


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
