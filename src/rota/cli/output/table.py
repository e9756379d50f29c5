"""Tables for people. Piped into a file they lose their colours, and never a character.

Drawn by hand: a library that can draw far more takes longer to load than a list takes to fetch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import combining, east_asian_width

from rota.cli.output.lines import say
from rota.cli.output.marks import told
from rota.errors import printable

GAP = "   "
BOLD = "\x1b[1m"
BEST = "\x1b[1;32m"
PLAIN = "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Column:
    """`best` are the rows whose cells stand out on a terminal. A title may have several lines."""

    title: str
    cells: tuple[str, ...]
    best: frozenset[int] = frozenset()
    is_number: bool = True


def say_table(columns: Sequence[Column], title: str = "") -> None:
    say("\n".join(draw(columns, title, is_coloured=is_coloured())))


def draw(columns: Sequence[Column], title: str = "", *, is_coloured: bool = False) -> list[str]:
    """The lines of a table."""
    # Names come from users and traces: a terminal must show them, not obey them.
    cells = [[printable(cell) for cell in column.cells] for column in columns]
    titles = [column.title.split("\n") for column in columns]
    widths = [
        max(map(cell_width, [*head, *body])) for head, body in zip(titles, cells, strict=True)
    ]
    height = max(len(head) for head in titles)
    heads = [[""] * (height - len(head)) + head for head in titles]
    lines = [_line(row, columns, widths=widths) for row in zip(*heads, strict=True)]
    lines.append(told("─") * (sum(widths) + len(GAP) * (len(widths) - 1)))
    for number, row in enumerate(zip(*cells, strict=True)):
        best = {place for place, column in enumerate(columns) if number in column.best}
        lines.append(_line(row, columns, widths=widths, best=best if is_coloured else ()))
    if title:
        lines.insert(0, f"{BOLD}{title}{PLAIN}" if is_coloured else title)
    return lines


def _line(
    row: Sequence[str],
    columns: Sequence[Column],
    *,
    widths: Sequence[int],
    best: Sequence[int] | set[int] = (),
) -> str:
    padded: list[str] = []
    for place, (cell, column) in enumerate(zip(row, columns, strict=True)):
        room = " " * (widths[place] - cell_width(cell))
        shown = f"{BEST}{cell}{PLAIN}" if place in best else cell
        padded.append(room + shown if column.is_number else shown + room)
    return GAP.join(padded).rstrip()


def cell_width(text: str) -> int:
    """Places that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text
    )


def is_coloured() -> bool:
    """See no-color.org."""
    is_wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return is_wanted and sys.stdout.isatty()
