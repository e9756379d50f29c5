"""A view that stays up to date until Ctrl-C."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager

from rota.cli.output.lines import say
from rota.cli.output.table import cell_width

REFRESH_S = 0.5
SCREEN_ON, SCREEN_OFF = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"

Draw = Callable[[], Sequence[str]]


def live(draw: Draw, *, changes: Iterable[object] = ()) -> None:
    """On a terminal the lines are drawn over themselves; a pipe gets them once, and again after
    each change."""
    if not sys.stdout.isatty():
        say("\n".join(draw()))
        for _ in changes:
            say("\n".join(["", *draw()]))
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
    """What fits, counted in places on the terminal."""
    line = line[:width]
    while cell_width(line) > width:
        line = line[:-1]
    return line
