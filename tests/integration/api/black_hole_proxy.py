"""A TCP proxy whose connections can stop forwarding and stay open, like a peer without power."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.support.timeouts import PATIENCE_S


class _Connection:
    def __init__(self, client: socket.socket, port: int) -> None:
        self.client = client
        self.server = socket.create_connection(("127.0.0.1", port))
        self.is_frozen = False
        self.sent = b""
        self.received = b""

    def start(self) -> None:
        for work in (self._forward_requests, self._forward_responses):
            threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        self.client.close()
        self.server.close()

    def _forward_requests(self) -> None:
        with suppress(OSError):
            while chunk := self.client.recv(65536):
                self.sent += chunk
                if not self.is_frozen:
                    self.server.sendall(chunk)
            self._close(self.server)

    def _forward_responses(self) -> None:
        with suppress(OSError):
            while chunk := self.server.recv(65536):
                if not self.is_frozen:
                    self.client.sendall(chunk)
                    self.received += chunk
            self._close(self.client)

    def _close(self, side: socket.socket) -> None:
        if not self.is_frozen:
            side.shutdown(socket.SHUT_RDWR)


class BlackHoleProxy:
    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[_Connection] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection = _Connection(self._listener.accept()[0], self._port)
                self._connections.append(connection)
                connection.start()

    def freeze(self) -> None:
        """Forward nothing more on the present connections, and keep them open. New connections
        work."""
        for each in self._connections:
            each.is_frozen = True

    def wait_forwarded(self, request: bytes, response: bytes) -> None:
        """Wait until a client that sent `request` got `response`."""
        until = time.monotonic() + PATIENCE_S
        while not any(request in each.sent and response in each.received for each in self._open()):
            assert time.monotonic() < until, f"no response {response!r} to {request!r}"
            time.sleep(0.01)

    def n_requests(self, request: bytes) -> int:
        return sum(each.sent.count(request) for each in self._connections)

    def _open(self) -> list[_Connection]:
        return [each for each in self._connections if not each.is_frozen]

    def close(self) -> None:
        self._listener.close()
        for each in self._connections:
            each.close()


@contextmanager
def black_hole_proxy(port: int) -> Iterator[BlackHoleProxy]:
    proxy = BlackHoleProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
