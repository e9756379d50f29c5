"""Forward ports of this machine to ports of a job's worker."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

from rota.client.client import Client
from rota.client.exec import WebSocketSession, dial
from rota.errors import RotaError, UnavailableError, UserError

READ_BYTES = 64 * 1024
MOST_CONNECTIONS = 128
HIGHEST_PORT = 65535
LOOPBACK = "127.0.0.1"
_PORTS = re.compile(r"([0-9]{1,5}):([0-9]{1,5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class PortMapping:
    """A local port and the worker's port. `local` 0: any free port."""

    local: int
    remote: int

    @classmethod
    def of_text(cls, text: str) -> PortMapping:
        """Parse `LOCAL:REMOTE`, such as `8080:80`."""
        found = _PORTS.fullmatch(text)
        local, remote = (int(found[1]), int(found[2])) if found else (0, 0)
        if not 0 < remote <= HIGHEST_PORT or local > HIGHEST_PORT:
            raise UserError(f"invalid ports '{text[:40]}'", "write LOCAL:REMOTE such as 8080:80")
        return cls(local, remote)


@dataclass(frozen=True, slots=True)
class ForwardTarget:
    """The worker (default: the first) of a job."""

    rota: Client
    job: str
    worker: int | None = None


class Forwarder:
    """Listens at once, so that a port in use fails early, and forwards connections after `serve`.
    Each connection that fails is reported to `on_error`."""

    def __init__(self, ports: Sequence[PortMapping], on_error: Callable[[str], None]) -> None:
        self._on_error = on_error
        self._listeners = [(_listen(each.local), each.remote) for each in ports]
        self._open: set[socket.socket] = set()
        self._free_slots = threading.BoundedSemaphore(MOST_CONNECTIONS)

    @property
    def ports(self) -> list[PortMapping]:
        """The ports in use, with the real number where `local` was 0."""
        return [
            PortMapping(listener.getsockname()[1], remote) for listener, remote in self._listeners
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in [*(listener for listener, _ in self._listeners), *self._open]:
            # A shutdown also wakes the thread that waits on the socket.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def serve(self, target: ForwardTarget) -> None:
        """Forward in background threads until the context ends."""
        for listener, port in self._listeners:
            _start(partial(self._accept, listener, port=port, target=target))

    def _accept(self, listener: socket.socket, *, port: int, target: ForwardTarget) -> None:
        while True:
            self._free_slots.acquire()
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self._open.add(client)
            _start(partial(self._forward, client, port=port, target=target))

    def _forward(self, client: socket.socket, *, port: int, target: ForwardTarget) -> None:
        try:
            with dial(target.rota, target.job, port=port, worker=target.worker) as session:
                _start(partial(_upload, client, session))
                for _, chunk in session.frames():
                    _send(client, chunk)
        except RotaError as error:
            self._on_error(f"port {port} of {target.job}: {error}")
        except OSError:
            # The local client closed the connection.
            pass
        finally:
            self._open.discard(client)
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            client.close()
            self._free_slots.release()


def _start(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()


def _upload(client: socket.socket, session: WebSocketSession) -> None:
    with suppress(OSError):
        while chunk := client.recv(READ_BYTES):
            if not session.write(chunk):
                return
    session.finish()


def _send(client: socket.socket, chunk: bytes) -> None:
    if chunk:
        client.sendall(chunk)
    else:
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen()
    except OSError as error:
        listener.close()
        what = f"cannot listen on {LOOPBACK}:{port}: {(error.strerror or str(error)).lower()}"
        raise UnavailableError(what, "choose another port") from None
    return listener
