"""Live views and colours on a terminal."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import redirect_stdout

import pytest

from rota.cli.output.live import SCREEN_OFF, SCREEN_ON, live
from rota.cli.output.table import Column, draw, is_coloured, print_table
from tests.support.timeouts import PATIENCE_S


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """For `with on(terminal)`: pytest takes stdout back between a fixture and its test."""
    made = Terminal()
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("LINES", "3")
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return made


def on(terminal: Terminal) -> redirect_stdout[Terminal]:
    return redirect_stdout(terminal)


def interrupted(*views: list[str]) -> Iterator[list[str]]:
    yield from views
    raise KeyboardInterrupt


def test_terminal_is_redrawn_and_restored(terminal: Terminal):
    views = interrupted(["a", "b", "c", "d"], ["漢字漢字漢字", "x" * 99])
    with on(terminal), pytest.raises(KeyboardInterrupt):
        live(lambda: next(views))
    out = terminal.getvalue()
    assert out.startswith(SCREEN_ON)
    assert out.endswith(SCREEN_OFF)
    assert "b\x1b[K\nq quits\x1b[K\x1b[J" in out
    assert "c\x1b[K" not in out
    assert "漢字漢字漢\x1b[K\n" + "x" * 10 + "\x1b[K\n" in out


def test_the_key_q_quits_and_restores_the_terminal():
    keyboard, screen = os.openpty()
    before = termios.tcgetattr(screen)
    script = "from rota.cli.output.live import live; live(lambda: ['view'])"
    with subprocess.Popen([sys.executable, "-c", script], stdin=screen, stdout=screen) as process:
        output = b""
        while b"q quits" not in output:
            output += os.read(keyboard, 1024)
        os.write(keyboard, b"q")
        assert process.wait(PATIENCE_S) == 0
    assert termios.tcgetattr(screen) == before
    for each in (keyboard, screen):
        os.close(each)


def test_pipe_gets_the_view_after_each_change(capsys: pytest.CaptureFixture[str]):
    views = iter([["a"], ["b"], ["c"]])
    live(lambda: next(views), changes=[1, 2])
    assert capsys.readouterr().out == "a\n\nb\n\nc\n"


BEST = [
    Column("policy", ("fifo", "srjf"), is_number=False),
    Column("h", ("1", "2"), frozenset([0])),
]


def test_only_terminals_get_colours(terminal: Terminal):
    with on(terminal):
        print_table(BEST, "Title")
    assert "\x1b[1mTitle\x1b[0m\n" in terminal.getvalue()
    assert "fifo     \x1b[1;32m1\x1b[0m\n" in terminal.getvalue()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_color_turns_colours_off(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, name: str, value: str
):
    with on(terminal):
        assert is_coloured()
        monkeypatch.setenv(name, value)
        print_table(BEST, "Title")
    assert "\x1b" not in terminal.getvalue()


def test_control_characters_in_cells_are_escaped():
    hostile = "\x1b]0;owned\x07\nnext"
    lines = draw([Column("name", (hostile, "plain"), is_number=False)])
    assert lines == ["name", "─" * 22, r"\x1b]0;owned\x07\nnext", "plain"]


def test_wide_characters_and_accents_stay_in_their_columns():
    names = Column("name", ("漢字", "e\u0301", "abc"), is_number=False)
    lines = draw([names, Column("n", ("1", "22", "3"))])
    assert lines == ["name    n", "─" * 9, "漢字    1", "e\u0301      22", "abc     3"]


def test_table_without_rows():
    assert draw([Column("a", ()), Column("bc", ())]) == ["a   bc", "──────"]
