"""Follow a job's output to its end, across restarts of the daemon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from rota.client.endpoint import NoDaemonError
from rota.errors import UnavailableError
from rota.wire.jobs import LogPiece, LogRange

Read = Callable[[LogRange], Iterator[LogPiece]]
GOOD_CONNECTION_S = 1.0
"""A connection that lasted longer than this proves that the daemon was up."""


class ReconnectDeadline:
    """Limits how long a client tries to reconnect. The time counts from the first failure in a
    row."""

    def __init__(self, *, most_s: float, pause_s: float) -> None:
        self._most_s = most_s
        self._pause_s = pause_s
        self._since_s: float | None = None
        self._tried_s = time.monotonic()

    def wait_or_raise(self, error: UnavailableError) -> None:
        """Sleep before the next try; raise `error` when the daemon was away for too long."""
        now = time.monotonic()
        lasted_s = now - self._tried_s
        was_connected = not isinstance(error, NoDaemonError) and lasted_s > GOOD_CONNECTION_S
        if self._since_s is None or was_connected:
            self._since_s = now
        if now - self._since_s > self._most_s:
            raise error
        time.sleep(self._pause_s)
        self._tried_s = time.monotonic()


def follow(read: Read, wanted: LogRange, *, deadline: ReconnectDeadline) -> Iterator[LogPiece]:
    """Yield all pieces, each once. After a broken connection, reading continues behind the newest
    piece of each worker."""
    attempt, marks = 0, dict[int, str]()
    while True:
        try:
            for piece in read(replace(wanted, after=list(marks.values()))):
                if piece.attempt != attempt:
                    # The previous attempt was read to its end.
                    attempt, marks = piece.attempt, {}
                if piece.mark:
                    marks[piece.worker] = piece.mark
                if piece.text:
                    yield piece
        except UnavailableError as error:
            deadline.wait_or_raise(error)
        else:
            return
