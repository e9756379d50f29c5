"""All commands there are, found the way that the program finds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from rota.cli.app import app


def commands() -> dict[str, Any]:
    """By their words, such as `nodes list`; groups are not among them."""
    return dict(_below(get_command(app), ""))


def groups() -> list[str]:
    root: Any = get_command(app)
    return [name for name, each in root.commands.items() if hasattr(each, "commands")]


def _below(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name.strip(), command
        return
    for word, each in command.commands.items():
        yield from _below(each, f"{name} {word}")
