"""The listening sockets of the daemon, and the HTTP servers on them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from rota.errors import UnavailableError

log = structlog.get_logger()
PORT_RETRY_S = 2.0
"""Pause between two tries to listen on a port that another process holds."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificate and key of the TCP listener. `fingerprint` is the SHA-256 of a certificate that
    the daemon made itself: clients must know it. Empty for a certificate of the administrator."""

    certificate: Path
    key: Path
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """Where the daemon listens on TCP. Without `tls`, it serves plain HTTP."""

    host: str
    port: int
    tls: TlsFiles | None = None

    @property
    def url(self) -> str:
        """For clients; the fragment of the URL is the fingerprint that the client checks."""
        scheme = "https" if self.tls else "http"
        pin = f"#sha256={self.tls.fingerprint}" if self.tls and self.tls.fingerprint else ""
        return f"{scheme}://{format_address(self.host, self.port)}{pin}"


class StartableServer(Protocol):
    started: bool
    should_exit: bool

    async def serve(self, sockets: list[socket.socket] | None = None) -> None: ...


class ServerBuilder(Protocol):
    def __call__(self, *, tls: TlsFiles | None = None) -> StartableServer: ...


class RunningServer:
    """An HTTP server on open sockets, until `stop`."""

    def __init__(self, server: StartableServer, sockets: Sequence[socket.socket]) -> None:
        self._server = server
        self._serving = asyncio.ensure_future(server.serve(sockets=list(sockets)))

    async def wait_until_started(self) -> None:
        await wait_until_started(self._server, self._serving)

    async def stop(self) -> None:
        self._server.should_exit = True
        await self._serving


class TcpListener:
    """Serves the API on a TCP address. While another process holds the port, the listener retries,
    and `problem` says so: the daemon serves its Unix sockets meanwhile."""

    def __init__(self, address: TcpAddress | None) -> None:
        self.problem = ""
        self._address = address
        self._running: RunningServer | None = None
        self._retrying: asyncio.Future[None] | None = None

    @property
    def url(self) -> str:
        """Empty if the daemon does not listen on TCP."""
        return self._address.url if self._address else ""

    async def start(self, create_server: ServerBuilder) -> None:
        if self._address is not None and not await self._try(self._address, create_server):
            self._retrying = asyncio.ensure_future(self._retry(self._address, create_server))

    async def stop(self) -> None:
        if self._retrying is not None:
            self._retrying.cancel()
            await asyncio.wait([self._retrying])
        if self._running is not None:
            await self._running.stop()

    async def _retry(self, address: TcpAddress, create_server: ServerBuilder) -> None:
        log.warning("cannot listen on TCP, retrying", error=self.problem)
        while True:
            await asyncio.sleep(PORT_RETRY_S)
            if await self._try(address, create_server):
                break
        log.info("listening on TCP", address=address.url)

    async def _try(self, address: TcpAddress, create_server: ServerBuilder) -> bool:
        try:
            listener = tcp_socket(address.host, address.port)
        except UnavailableError as error:
            self.problem = error.message
            return False
        self._running = RunningServer(create_server(tls=address.tls), [listener])
        await self._running.wait_until_started()
        self.problem = ""
        return True


async def wait_until_started(server: StartableServer, running: asyncio.Future[None]) -> None:
    """Raises if the server ends before it has started."""
    while not server.started:
        if running.done():
            running.result()
        await asyncio.sleep(0.005)


def unix_socket(path: Path) -> socket.socket:
    """All users may connect to the socket of root: the kernel reports their user ids. The socket of
    any other user is private."""
    with suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
    except OSError as error:
        hint = "choose a shorter ROTA_HOME" if "too long" in str(error) else ""
        raise UnavailableError(f"{path}: {error.strerror or error}", hint) from None
    path.chmod(0o666 if os.geteuid() == 0 else 0o600)
    return listener


def format_address(host: str, port: int) -> str:
    """As in a URL: an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def tcp_socket(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        what = f"cannot listen on {host}:{port}: {error.strerror or error}"
        raise UnavailableError(what, "choose another --listen") from None
    return listener
