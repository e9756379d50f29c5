"""Answers of hostile servers that the daemon reads: bounded in memory."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from rota.daemon.migration.requests import MigrationTarget
from rota.errors import UnavailableError
from rota.kube import http
from rota.kube.auth import ClusterAccess
from rota.kube.errors import ApiError
from rota.server.migration_transport import ANSWER_BYTES_MAX, HttpMigrationTransport

MIB = 1024**2
ENDLESS = 64 * MIB
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
LONG = HEAD + b"Content-Length: %d\r\n\r\n" % ENDLESS


class HostileServer:
    """Answers every request with a body of `ENDLESS` bytes."""

    def __init__(self, head: bytes) -> None:
        self.n_sent = 0
        self._piece = b"100000\r\n%s\r\n" % (b" " * MIB) if head == CHUNKED else b" " * MIB
        self._head = head
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, suppress(OSError):
                    connection.recv(65536)
                    connection.sendall(self._head)
                    for _ in range(ENDLESS // MIB):
                        connection.sendall(self._piece)
                        self.n_sent += MIB


@contextmanager
def hostile(head: bytes) -> Iterator[HostileServer]:
    server = HostileServer(head)
    try:
        yield server
    finally:
        server.close()


@pytest.mark.parametrize("head", [LONG, CHUNKED])
def test_the_target_of_a_move_cannot_fill_the_memory(head: bytes) -> None:
    with hostile(head) as server:
        target = MigrationTarget("there", server.url, "secret", allows_plain_http=True)
        with pytest.raises(UnavailableError, match="larger than 4 MiB"):
            HttpMigrationTransport().let_go(target, "job")
        assert server.n_sent < ANSWER_BYTES_MAX + 16 * MIB


def test_an_api_server_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "RESPONSE_BYTES_MAX", 4 * MIB)

    async def scenario(url: str) -> None:
        transport = http.Transport(ClusterAccess(url, "default", ssl.create_default_context()))
        try:
            with pytest.raises(ApiError, match="larger than 4 MiB"):
                await transport.request(http.ApiRequest("POST", "/api"))
        finally:
            await transport.close()

    with hostile(LONG) as server:
        asyncio.run(scenario(server.url))
        assert server.n_sent < 24 * MIB
