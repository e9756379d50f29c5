"""Log following across restarts of the daemon."""

from collections.abc import Iterator

import pytest

from rota.client.endpoint import NoDaemonError
from rota.client.log_follow import ReconnectDeadline, follow
from rota.errors import UnavailableError
from rota.wire.jobs import LogPiece, LogRange

BREAK = UnavailableError("it broke")
NOBODY = NoDaemonError("nobody")


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
