"""Draws tables and progress bars. In a pipe they have no colours and are not cut.

The code is written by hand, because importing rich takes longer than fetching a list of jobs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from unicodedata import combining, east_asian_width

from rota.cli.output.console import print_out
from rota.errors import printable

GAP = "   "
BOLD = "\x1b[1m"
BEST = "\x1b[1;32m"
PLAIN = "\x1b[0m"
MIN_CUT = 8
"""Cells are not cut below this width."""
BAR_WIDTH = 10
EIGHTHS = " ▏▎▍▌▋▊▉█"
ASCII_SIGNS = str.maketrans(
    {
        "─": "-",
        "│": "|",
        "┤": "|",
        "┬": "+",
        "└": "+",
        "●": "o",
        "○": "c",
        "·": ".",
        "…": "~",
        "±": "+-",
    }
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `best` are the rows that are highlighted on a terminal. A title may
    have several lines."""

    title: str
    cells: tuple[str, ...]
    best: frozenset[int] = frozenset()
    is_number: bool = True


def fit(
    columns: Sequence[Column], *, droppable: Sequence[str], cut: Mapping[str, int]
) -> list[Column]:
    """The columns that fit on the terminal. In a pipe, all of them.

    `cut` has columns that may be cut, with the width that each should keep: until this width, cells
    are cut in the order of `cut`. If that is not enough, `droppable` columns are left out before
    cells are cut further.
    """
    kept, width = list(columns), _terminal_width()
    if not width:
        return kept
    for title in droppable:
        if _width(kept, cut) > width:
            kept = [each for each in kept if each.title != title]
    for widths in (cut, dict.fromkeys(cut, MIN_CUT)):
        for title, least in widths.items():
            excess = _width(kept, {}) - width
            if excess > 0:
                kept = [
                    _cut(each, excess, least=least) if each.title == title else each
                    for each in kept
                ]
    return kept


def _width(columns: Sequence[Column], at_most: Mapping[str, int]) -> int:
    """The width of a table in which some columns are cut to a width."""
    widths = [min(_column_width(each), at_most.get(each.title, sys.maxsize)) for each in columns]
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _column_width(column: Column) -> int:
    return max(map(cell_width, [column.title, *map(printable, column.cells)]))


def _cut(column: Column, excess: int, *, least: int) -> Column:
    width = max(least, _column_width(column) - excess)
    return replace(column, cells=tuple(_cut_cell(printable(each), width) for each in column.cells))


def _cut_cell(text: str, width: int) -> str:
    if cell_width(text) <= width:
        return text
    while cell_width(text) > width - 1:
        text = text[:-1]
    return f"{text}{to_output_charset('…')}"


def _terminal_width() -> int:
    """The columns of the terminal; 0 if stdout is none."""
    if not sys.stdout.isatty():
        return 0
    try:
        return int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size(1).columns
    except (ValueError, OSError):
        return 0


def print_table(columns: Sequence[Column], title: str = "") -> None:
    print_out("\n".join(draw(columns, title, is_coloured=is_coloured())))


def draw(columns: Sequence[Column], title: str = "", *, is_coloured: bool = False) -> list[str]:
    """The lines of a table."""
    # Names come from users and traces: escape control characters, so that no terminal runs them.
    cells = [[printable(cell) for cell in column.cells] for column in columns]
    titles = [column.title.split("\n") for column in columns]
    widths = [
        max(map(cell_width, [*head, *body])) for head, body in zip(titles, cells, strict=True)
    ]
    height = max(len(head) for head in titles)
    heads = [[""] * (height - len(head)) + head for head in titles]
    lines = [_line(row, columns, widths=widths) for row in zip(*heads, strict=True)]
    lines.append(to_output_charset("─") * (sum(widths) + len(GAP) * (len(widths) - 1)))
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
        padding = " " * (widths[place] - cell_width(cell))
        shown = f"{BEST}{cell}{PLAIN}" if place in best else cell
        padded.append(padding + shown if column.is_number else shown + padding)
    return GAP.join(padded).rstrip()


def cell_width(text: str) -> int:
    """The number of terminal columns that a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text
    )


def is_coloured() -> bool:
    """See no-color.org."""
    is_wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return is_wanted and sys.stdout.isatty()


def is_ascii_only() -> bool:
    """Whether stdout can show ASCII only."""
    encoding = sys.stdout.encoding or "utf-8"
    return not encoding.lower().replace("-", "").startswith("utf")


def to_output_charset(text: str) -> str:
    """The text with rota's drawing characters replaced by ASCII if stdout needs it."""
    return text.translate(ASCII_SIGNS) if is_ascii_only() else text


def percent(part: float | None) -> str:
    """Rounded down, so that only finished work is 100 %."""
    return "-" if part is None else f"{int(_within(part) * 100 + 1e-9)}%"


def progress(part: float | None) -> str:
    """A bar and its percentage on a terminal, only the percentage in a pipe."""
    if part is None or not sys.stdout.isatty():
        return percent(part)
    return f"{bar(part, is_ascii=is_ascii_only())} {percent(part):>4}"


def bar(part: float, *, is_ascii: bool) -> str:
    """A bar of ten columns. With Unicode its resolution is an eighth of a column."""
    if is_ascii:
        full = int(_within(part) * BAR_WIDTH + 1e-9)
        return f"[{'#' * full}{'.' * (BAR_WIDTH - full)}]"
    eighths = int(_within(part) * BAR_WIDTH * 8 + 1e-9)
    full, rest = divmod(eighths, 8)
    drawn = "█" * full + (EIGHTHS[rest] if rest else "")
    return drawn + "░" * (BAR_WIDTH - len(drawn))


def _within(part: float) -> float:
    return min(1.0, max(0.0, part))
