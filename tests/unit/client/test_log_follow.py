"""Following of logs and events across lost connections."""

import time
from collections.abc import Iterator

import pytest

from rota.client.endpoint import NoDaemonError
from rota.client.http import StreamEvent, StreamLostError
from rota.client.log_follow import ReconnectDeadline, follow, follow_events
from rota.errors import UnavailableError
from rota.wire.jobs import LogPiece, LogRange

BREAK = StreamLostError("broken", open_s=0.0)
LONG_BREAK = StreamLostError("broken", open_s=60.0)
SILENT = UnavailableError("timed out")
NOBODY = NoDaemonError("no daemon")


def piece(worker: int, text: str, end: int, *, attempt: int = 1) -> LogPiece:
    return LogPiece(0.0, attempt, worker, text, f"{attempt}:{worker}:{end}")


class Daemon:
    """Answers with one list after the other; an error in a list breaks the connection."""

    def __init__(self, *answers: list[LogPiece | UnavailableError]) -> None:
        self.asked: list[list[str]] = []
        self._answers = iter(answers)

    def read(self, wanted: LogRange) -> Iterator[LogPiece]:
        self.asked.append(wanted.after)
        for each in next(self._answers):
            if isinstance(each, UnavailableError):
                raise each
            yield each

    def followed(self, most_s: float = 60.0) -> str:
        deadline = ReconnectDeadline(most_s=most_s, pause_s=0.0)
        return "".join(each.text for each in follow(self.read, LogRange(), deadline=deadline))


def test_reading_continues_behind_the_newest_piece_of_each_worker() -> None:
    first = [piece(0, "a", 1), piece(1, "x", 1), piece(0, "b", 2), BREAK]
    daemon = Daemon(first, [NOBODY], [piece(0, "", 2), piece(1, "y", 2)])
    assert daemon.followed() == "axby"
    assert daemon.asked == [[], ["1:0:2", "1:1:1"], ["1:0:2", "1:1:1"]]


def test_marks_of_an_ended_attempt_are_dropped() -> None:
    daemon = Daemon([piece(0, "a", 1), piece(3, "b", 1, attempt=2), BREAK], [])
    assert daemon.followed() == "ab"
    assert daemon.asked[-1] == ["2:3:1"]


def test_mark_without_output_is_remembered() -> None:
    daemon = Daemon([piece(0, "", 7), BREAK], [])
    assert daemon.followed() == ""
    assert daemon.asked[-1] == ["1:0:7"]


def test_daemon_that_stays_away_raises() -> None:
    with pytest.raises(NoDaemonError):
        Daemon([piece(0, "a", 1), NOBODY]).followed(most_s=-1.0)


def test_peer_that_accepts_connections_but_answers_nothing_counts_as_down() -> None:
    deadline = ReconnectDeadline(most_s=-1.0, pause_s=0.0)
    with pytest.raises(UnavailableError, match="timed out"):
        deadline.wait_or_raise(SILENT)


def test_open_stream_restarts_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 100.0, 120.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    deadline = ReconnectDeadline(most_s=50.0, pause_s=0.0)
    deadline.wait_or_raise(NOBODY)
    deadline.wait_or_raise(LONG_BREAK)
    deadline.wait_or_raise(NOBODY)


def test_short_streams_do_not_restart_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 100.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    deadline = ReconnectDeadline(most_s=50.0, pause_s=0.0)
    deadline.wait_or_raise(NOBODY)
    with pytest.raises(StreamLostError):
        deadline.wait_or_raise(BREAK)


def event(number: int) -> StreamEvent:
    return StreamEvent(str(number), {"number": number})


def followed_events(
    *answers: list[StreamEvent | UnavailableError], after: int | None = None
) -> tuple[list[int], list[int | None]]:
    """Numbers of the yielded events, and the positions that were asked for."""
    left, asked = iter(answers), list[int | None]()

    def read(position: int | None) -> Iterator[StreamEvent]:
        asked.append(position)
        for each in next(left):
            if isinstance(each, UnavailableError):
                raise each
            yield each

    deadline = ReconnectDeadline(most_s=60.0, pause_s=0.0)
    found = follow_events(read, after=after, deadline=deadline)
    return [each.data["number"] for each in found], asked


def test_events_continue_behind_the_last_one() -> None:
    numbers, asked = followed_events([event(4), event(5), BREAK], [NOBODY], [event(6)], after=3)
    assert (numbers, asked) == ([4, 5, 6], [3, 5, 5])


def test_events_continue_at_the_position_sent_before_the_first_event() -> None:
    numbers, asked = followed_events([StreamEvent("8", None), BREAK], [event(9)])
    assert (numbers, asked) == ([9], [None, 8])


def test_first_connection_for_events_is_not_retried() -> None:
    with pytest.raises(NoDaemonError):
        followed_events([NOBODY], [event(1)])
