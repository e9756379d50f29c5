"""The progress bar is for people: on a terminal, on stderr, and gone afterwards."""

from __future__ import annotations

import io

import pytest

from rota.cli.output.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_sees_nothing(monkeypatch: pytest.MonkeyPatch):
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    with progress(["fifo"]) as report:
        report(0, 0.5)
    assert pipe.getvalue() == ""


def test_a_terminal_sees_a_line_for_each_policy(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress(["fifo", "[red]srjf"]) as report:
        for done in range(1_000):
            report(0, (done + 1) / 1_000)
    assert "fifo" in terminal.getvalue()
    assert "[red]srjf" in terminal.getvalue()
    assert "100%" in terminal.getvalue()
