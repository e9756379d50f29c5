"""Redraws a view on the terminal until Ctrl-C."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager

from rota.cli.output.console import print_out
from rota.cli.output.table import cell_width

REFRESH_S = 0.5
SCREEN_ON, SCREEN_OFF = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"

Draw = Callable[[], Sequence[str]]


def live(draw: Draw, *, changes: Iterable[object] = ()) -> None:
    """Redraw the view periodically on a terminal. In a pipe, print it once and after each item of
    `changes`."""
    if not sys.stdout.isatty():
        print_out("\n".join(draw()))
        for _ in changes:
            print_out("\n".join(["", *draw()]))
        return
    with _screen():
        while True:
            columns, rows = shutil.get_terminal_size()
            lines = [_cut(line, columns) + CLEAR_LINE for line in draw()[:rows]]
            sys.stdout.write(HOME + "\n".join(lines) + CLEAR_BELOW)
            sys.stdout.flush()
            time.sleep(REFRESH_S)


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
