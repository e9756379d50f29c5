"""Reading a job's output to its end, though daemons come and go meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from rota.client.find import NoDaemonError
from rota.errors import UnavailableError
from rota.wire.jobs import LogPiece, LogRange

Read = Callable[[LogRange], Iterator[LogPiece]]


LASTED_S = 1.0
"""A connection that breaks after so long was a good one."""


class Absence:
    """For how long nobody has answered. It counts from the first `bear` in a row."""

    def __init__(self, *, most_s: float, pause_s: float) -> None:
        self._most_s = most_s
        self._pause_s = pause_s
        self._since_s: float | None = None
        self._tried_s = time.monotonic()

    def bear(self, error: UnavailableError) -> None:
        """A pause; raises once it has been enough."""
        now = time.monotonic()
        has_answered = not isinstance(error, NoDaemonError) and now - self._tried_s > LASTED_S
        if self._since_s is None or has_answered:
            self._since_s = now
        if now - self._since_s > self._most_s:
            raise error
        time.sleep(self._pause_s)
        self._tried_s = time.monotonic()


def follow(read: Read, wanted: LogRange, *, absence: Absence) -> Iterator[LogPiece]:
    """All pieces, each once: whenever the connection breaks, the reading goes on behind the newest
    piece of each worker."""
    attempt, marks = 0, dict[int, str]()
    while True:
        try:
            for piece in read(replace(wanted, after=list(marks.values()))):
                if piece.attempt != attempt:
                    # The one before has been read to its end.
                    attempt, marks = piece.attempt, {}
                if piece.mark:
                    marks[piece.worker] = piece.mark
                if piece.text:
                    yield piece
        except UnavailableError as error:
            absence.bear(error)
        else:
            return
