"""Follow output and events to their end, across lost connections and restarts of the daemon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from rota.client.http import StreamEvent, StreamLostError
from rota.errors import UnavailableError
from rota.wire.jobs import LogPiece, LogRange

Read = Callable[[LogRange], Iterator[LogPiece]]
ReadEvents = Callable[[int | None], Iterator[StreamEvent]]
GOOD_STREAM_S = 1.0
"""A stream that was open for longer than this proves that the daemon was up."""


class ReconnectDeadline:
    """Limits how long a client tries to reconnect. The time counts from the first failure after
    the last stream that the daemon answered. A peer that accepts connections and answers nothing
    counts as failing."""

    def __init__(self, *, most_s: float, pause_s: float) -> None:
        self._most_s = most_s
        self._pause_s = pause_s
        self._since_s: float | None = None

    def wait_or_raise(self, error: UnavailableError) -> None:
        """Sleep before the next try; raise `error` when the daemon was away for too long."""
        now = time.monotonic()
        was_open = isinstance(error, StreamLostError) and error.open_s > GOOD_STREAM_S
        if self._since_s is None or was_open:
            self._since_s = now
        if now - self._since_s > self._most_s:
            raise error
        time.sleep(self._pause_s)


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


def follow_events(
    read: ReadEvents, *, after: int | None, deadline: ReconnectDeadline
) -> Iterator[StreamEvent]:
    """Yield all events, each once. After a lost connection, reading continues behind the last
    position that the daemon sent. A first connection that fails raises at once."""
    has_begun = False
    while True:
        try:
            for event in read(after):
                has_begun = True
                after = int(event.id) if event.id.isdecimal() else after
                if event.data is not None:
                    yield event
        except UnavailableError as error:
            if not has_begun:
                raise
            deadline.wait_or_raise(error)
        else:
            return
