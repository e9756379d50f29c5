"""All commands of the command line, from the application that users run."""

from __future__ import annotations

from rota.cli.app import MODULE_OF, NOUNS, command_named, commands_of, with_context
from rota.cli.command import Command


def commands() -> dict[str, Command]:
    """Name, such as `nodes list`, -> command; without groups."""
    verbs = {name: with_context(name, command_named(name)) for name in MODULE_OF}
    below = {
        f"{noun} {each.name}": with_context(noun, each)
        for noun in NOUNS
        for each in commands_of(noun)
    }
    return verbs | below


def groups() -> list[str]:
    return list(NOUNS)
