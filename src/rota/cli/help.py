"""Renders the help of commands and of groups of commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from textwrap import wrap

from rota.cli.command import OPTIONS, Command, CommandArgument, CommandOption

MAX_WIDTH = 98
MIN_WIDTH = 50
MAX_NAME_WIDTH = 30
"""A longer name stands on a line of its own, above its description."""
HELP_ROW = ("-h, --help", "Show this message and exit.")

Rows = list[tuple[str, str]]


def command_help(command: Command, *, path: str) -> str:
    pieces = " ".join(["[OPTIONS]", *map(_usage_piece, command.arguments)])
    sections: dict[str, Rows] = {}
    if command.arguments:
        sections["Arguments"] = [(each.metavar, each.text) for each in command.arguments]
    for each in command.options:
        sections.setdefault(each.group, []).append(_option_row(each))
    own = sections.pop(OPTIONS, [])
    sections["Options"] = [*own, HELP_ROW]
    return _page(f"{path} {pieces}", command.help, sections=sections, epilog=command.epilog)


def group_help(
    path: str,
    text: str,
    *,
    options: Sequence[CommandOption],
    sections: Mapping[str, Rows],
    epilog: str,
) -> str:
    """The help of a group: its own options, and its commands under headings."""
    own = {"Options": [*map(_option_row, options), HELP_ROW]}
    usage = f"{path} [OPTIONS] COMMAND [ARGS]..."
    return _page(usage, text, sections={**own, **sections}, epilog=epilog)


def _usage_piece(argument: CommandArgument) -> str:
    return argument.metavar if argument.is_required else f"[{argument.metavar}]"


def _option_row(option: CommandOption) -> tuple[str, str]:
    name = ", ".join(sorted(option.flags, key=lambda each: each.startswith("--")))
    notes = "; required" if option.is_required else "; repeatable" if option.is_repeatable else ""
    text = f"{option.text.removesuffix('.')}{notes}." if notes else option.text
    return f"{name} {option.metavar}".rstrip(), text


def _page(usage: str, text: str, *, sections: Mapping[str, Rows], epilog: str) -> str:
    width = _width()
    lines = [f"Usage: {usage}", ""]
    for paragraph in text.split("\n\n"):
        lines += [*_indented(paragraph, width), ""]
    for title, rows in sections.items():
        lines += [f"{title}:", *_table(rows, width), ""]
    return "\n".join([*lines, *(_indented(epilog, width) if epilog else [])]).rstrip()


def _indented(text: str, width: int) -> list[str]:
    return wrap(" ".join(text.split()), width, initial_indent="  ", subsequent_indent="  ")


def _table(rows: Rows, width: int) -> list[str]:
    short = [len(name) for name, _ in rows if len(name) <= MAX_NAME_WIDTH]
    column = max(short, default=0) + 4
    lines: list[str] = []
    for name, text in rows:
        head, indent = f"  {name}".ljust(column), " " * column
        if len(name) > MAX_NAME_WIDTH:
            lines.append(f"  {name}")
            head = indent
        wrapped = wrap(text, width, initial_indent=head, subsequent_indent=indent)
        lines += wrapped or [head.rstrip()]
    return lines


def _width() -> int:
    try:
        columns = (
            int(os.environ.get("COLUMNS", "0"))
            or os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns
        )
    except (ValueError, OSError):
        columns = 80
    return max(min(columns - 2, MAX_WIDTH), MIN_WIDTH)
