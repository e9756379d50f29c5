"""All commands of the command line, from the application that users run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from rota.cli.app import app


def commands() -> dict[str, Any]:
    """Name, such as `nodes list`, -> command; without groups."""
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
