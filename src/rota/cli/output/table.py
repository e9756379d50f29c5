"""Tables for people. Piped into a file they lose their colours, and never a character."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rota.cli.output.lines import say

BEST = "bold green"


@dataclass(frozen=True, slots=True)
class Column:
    """`best` are the rows whose cells stand out on a terminal."""

    title: str
    cells: tuple[str, ...]
    best: frozenset[int] = frozenset()
    is_number: bool = True


def draw(columns: Sequence[Column], title: str = "") -> Table:
    table = Table(
        box=SIMPLE_HEAD,
        title=Text(title) if title else None,
        title_justify="left",
        title_style="bold",
        show_edge=False,
        pad_edge=False,
        header_style="",
    )
    for column in columns:
        justify = "right" if column.is_number else "left"
        table.add_column(Text(column.title), justify=justify, no_wrap=True)
    for row in range(len(columns[0].cells)):
        # Text, not markup: names come from users and traces.
        table.add_row(
            *(
                Text(column.cells[row], style=BEST if row in column.best else "")
                for column in columns
            )
        )
    return table


def say_table(columns: Sequence[Column], title: str = "") -> None:
    table = draw(columns, title)
    console = _console()
    needed = console.measure(table, options=console.options.update(max_width=10_000)).maximum
    console.width = max(console.width, needed)
    with console.capture() as drawn:
        console.print(table)
    say("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def _console() -> Console:
    return Console(file=sys.stdout, highlight=False, emoji=False, markup=False)
