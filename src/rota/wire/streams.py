"""Keepalive of streams: the times that the daemon and its clients agree on, and TCP keepalive.

A stream may be idle for days, so silence alone does not show whether the peer still exists. The
daemon sends a comment on every event stream at least every `KEEPALIVE_S`. A client that receives
nothing for `SILENCE_S` closes the connection and reconnects. TCP keepalive covers the connections
that carry no comments: plain bytes, exec sessions and forwarded ports.
"""

from __future__ import annotations

import socket

KEEPALIVE_S = 15.0
SILENCE_S = 45.0
"""Three comments: one late comment does not break a stream."""
TCP_IDLE_S = 60
TCP_INTERVAL_S = 15
TCP_PROBES = 4


def enable_tcp_keepalive(connection: socket.socket) -> None:
    """Let the kernel close an idle TCP connection two minutes after its peer has disappeared. Does
    nothing for a Unix socket: its peer is on this machine."""
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, TCP_IDLE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, TCP_INTERVAL_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, TCP_PROBES)
