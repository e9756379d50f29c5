"""Text of other users and of programs cannot control a terminal."""

import io
import sys

import pytest

from rota.cli.escapes import EscapeFilter, neutralise
from rota.cli.output.console import print_out
from rota.cli.output.logs import LineFormat, print_pieces
from rota.wire.jobs import LogPiece

TITLE = "\x1b]0;owned\x07"
CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4K\x07"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\n\ttext\r", "plain\n\ttext\r"),
        ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
        ("12%\b\b\b13%", "12%\b\b\b13%"),
        (TITLE, r"\x1b]0;owned\x07"),
        ("\x1b[2J\x1b[H", r"\x1b[2J\x1b[H"),
        ("\x9b2J", r"\x9b2J"),
        ("a\u202eb", r"a\u202eb"),
        ("\x1b[" + "1;" * 50 + "m", r"\x1b[" + "1;" * 50 + "m"),
    ],
)
def test_only_colours_and_progress_bars_keep_their_controls(text: str, expected: str) -> None:
    assert neutralise(text) == expected


@pytest.mark.parametrize("size", [1, 2, 3])
def test_pieces_are_neutralised_like_the_whole(size: int) -> None:
    whole = f"\x1b[32mgrün\x1b[0m {CLIPBOARD} \x9b ☃ \x1b"
    raw = whole.encode()
    output = EscapeFilter()
    pieces = [output.feed(raw[each : each + size]) for each in range(0, len(raw), size)]
    assert "".join([*pieces, output.finish()]) == neutralise(whole)


def test_bytes_that_are_not_text_control_nothing() -> None:
    output = EscapeFilter()
    assert output.feed(b"\x9b2J\xff\xc2") + output.finish() == "\ufffd2J\ufffd\ufffd"


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    """What a test writes to a terminal. Not a fixture: pytest sets stdout before each test."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Terminal(written, "utf-8", write_through=True))
    return written


def test_results_on_a_terminal_are_neutralised(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    print_out(f"job {TITLE} is queued")
    assert terminal.getvalue() == b"job \\x1b]0;owned\\x07 is queued\n"


@pytest.mark.parametrize("has_times", [False, True])
def test_logs_are_neutralised(monkeypatch: pytest.MonkeyPatch, has_times: bool) -> None:
    terminal = terminal_of(monkeypatch)
    pieces = [LogPiece(0.0, 1, 0, text) for text in (f"one\n{TITLE}", "two\x1b[", "3mblue\n\x1b")]
    print_pieces(pieces, LineFormat(has_times=has_times, is_neutralised=True))
    shown = terminal.getvalue()
    assert b"\\x1b]0;owned\\x07two\x1b[3mblue\n" in shown
    assert shown.rstrip().endswith(b"\\x1b")
    terminal.truncate(0)
    print_pieces(pieces, LineFormat(has_times=has_times))
    assert TITLE.encode() in terminal.getvalue()
