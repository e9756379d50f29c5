"""Redraws a view on the terminal until the key q or Ctrl-C."""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager

from rota.cli.escapes import neutralise
from rota.cli.output.console import print_out
from rota.cli.output.table import cell_width

REFRESH_S = 0.5
SCREEN_ON, SCREEN_OFF = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"

HELP_LINE = "q quits"

Draw = Callable[[], Sequence[str]]


def live(draw: Draw, *, changes: Iterable[object] = ()) -> None:
    """Redraw the view periodically on a terminal. In a pipe, print it once and after each item of
    `changes`."""
    if not sys.stdout.isatty():
        print_out("\n".join(draw()))
        for _ in changes:
            print_out("\n".join(["", *draw()]))
        return
    with _screen(), _single_keys() as keyboard:
        while True:
            columns, rows = shutil.get_terminal_size()
            shown = [*draw()[: rows - 1], HELP_LINE]
            lines = [neutralise(_cut(line, columns)) + CLEAR_LINE for line in shown]
            sys.stdout.write(HOME + "\n".join(lines) + CLEAR_BELOW)
            sys.stdout.flush()
            if _quits(keyboard, REFRESH_S):
                return


def _quits(keyboard: int | None, wait_s: float) -> bool:
    """Wait for a key; whether it is `q`, or the terminal is gone."""
    if keyboard is None:
        time.sleep(wait_s)
        return False
    if not select.select([keyboard], [], [], wait_s)[0]:
        return False
    keys = os.read(keyboard, 1024)
    return not keys or b"q" in keys or b"Q" in keys


@contextmanager
def _single_keys() -> Generator[int | None]:
    """Read keys from the terminal without Enter and without showing them. None if stdin is no
    terminal. Ctrl-C still interrupts."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield None
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd, termios.TCSADRAIN)
        yield fd
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextmanager
def _screen() -> Generator[None]:
    sys.stdout.write(SCREEN_ON)
    try:
        yield
    finally:
        sys.stdout.write(SCREEN_OFF)
        sys.stdout.flush()


def _cut(line: str, width: int) -> str:
    """The first part of a line that fits into `width` terminal columns."""
    line = line[:width]
    while cell_width(line) > width:
        line = line[:-1]
    return line
