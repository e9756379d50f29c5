"""Ports of this machine that lead to ports of a job's worker."""

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
from rota.client.sessions import Session, dial
from rota.errors import RotaError, UnavailableError, UserError

READ_BYTES = 64 * 1024
MOST_CONNECTIONS = 128
HIGHEST_PORT = 65535
LOOPBACK = "127.0.0.1"
_PORTS = re.compile(r"([0-9]{1,5}):([0-9]{1,5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Ports:
    """`here` 0: any that is free."""

    here: int
    there: int

    @classmethod
    def of_text(cls, text: str) -> Ports:
        """`HOST:JOB`, as in `8080:80`."""
        found = _PORTS.fullmatch(text)
        here, there = (int(found[1]), int(found[2])) if found else (0, 0)
        if not 0 < there <= HIGHEST_PORT or here > HIGHEST_PORT:
            raise UserError(f"'{text[:40]}' is not a pair of ports", "write 8080:80")
        return cls(here, there)


@dataclass(frozen=True, slots=True)
class Target:
    rota: Client
    job: str
    worker: int | None = None


class Forwarder:
    """Listens from the beginning, so that a port that is taken shows at once; carries connections
    from `serve` on. Each one that cannot be carried is told to `complain`."""

    def __init__(self, ports: Sequence[Ports], complain: Callable[[str], None]) -> None:
        self._complain = complain
        self._doors = [(_listen(each.here), each.there) for each in ports]
        self._open: set[socket.socket] = set()
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)

    @property
    def ports(self) -> list[Ports]:
        """As they are, with what was free where any was wanted."""
        return [Ports(door.getsockname()[1], there) for door, there in self._doors]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in [*(door for door, _ in self._doors), *self._open]:
            # A shutdown also wakes the thread that waits for it.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def serve(self, target: Target) -> None:
        """In the background, until this is left."""
        for door, port in self._doors:
            _start(partial(self._accept, door, port=port, target=target))

    def _accept(self, door: socket.socket, *, port: int, target: Target) -> None:
        while True:
            self._room.acquire()
            try:
                here, _ = door.accept()
            except OSError:
                return
            self._open.add(here)
            _start(partial(self._carry, here, port=port, target=target))

    def _carry(self, here: socket.socket, *, port: int, target: Target) -> None:
        try:
            with dial(target.rota, target.job, port=port, worker=target.worker) as session:
                _start(partial(_upload, here, session))
                for _, chunk in session.frames():
                    _give(here, chunk)
        except RotaError as error:
            self._complain(f"port {port} of {target.job}: {error}")
        except OSError:
            # Whoever connected here went away.
            pass
        finally:
            self._open.discard(here)
            with suppress(OSError):
                here.shutdown(socket.SHUT_RDWR)
            here.close()
            self._room.release()


def _start(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()


def _upload(here: socket.socket, session: Session) -> None:
    with suppress(OSError):
        while chunk := here.recv(READ_BYTES):
            if not session.write(chunk):
                return
    session.finish()


def _give(here: socket.socket, chunk: bytes) -> None:
    if chunk:
        here.sendall(chunk)
    else:
        with suppress(OSError):
            here.shutdown(socket.SHUT_WR)


def _listen(port: int) -> socket.socket:
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((LOOPBACK, port))
        door.listen()
    except OSError as error:
        door.close()
        what = f"cannot listen on {LOOPBACK}:{port}: {(error.strerror or str(error)).lower()}"
        raise UnavailableError(what, "choose another port") from None
    return door
