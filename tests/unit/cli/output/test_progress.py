"""The progress bar is on stderr, on terminals only, and removed at the end."""

from __future__ import annotations

import io

import pytest

from rota.cli.output.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_pipe_gets_no_progress_bar(monkeypatch: pytest.MonkeyPatch):
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    with progress(["fifo"]) as report:
        report(0, 0.5)
    assert pipe.getvalue() == ""


def test_terminal_gets_one_bar_per_policy(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress(["fifo", "[red]srjf"]) as report:
        for done in range(1_000):
            report(0, (done + 1) / 1_000)
    assert "fifo" in terminal.getvalue()
    assert "[red]srjf" in terminal.getvalue()
    assert "100%" in terminal.getvalue()
