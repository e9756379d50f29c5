"""Finds the command of a command line, parses its words and runs it.

A command's module is imported when the command runs, so that no command pays for the imports of
another. `rota.cli.main` imports this module after it has set up the handling of Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from rota.cli.command import (
    HELP_NAMES,
    Command,
    UsageError,
    flag,
    is_help,
    parse,
    program_start,
    unknown_command,
    unknown_option,
)
from rota.cli.options import CONTEXT

if TYPE_CHECKING:
    from types import ModuleType

PACKAGE = "rota.cli.commands"
VERBS = {
    "submit": ("submit", "edit"),
    "jobs": (
        *("list", "show", "story", "cancel", "hold", "release", "resize", "resubmit", "wait"),
        "profile",
    ),
    "logs": ("logs", "report"),
    "exec": ("exec", "shell", "port-forward", "cp"),
    "daemon": ("up", "status", "down", "doctor", "top"),
    "simulate": ("simulate",),
    "completion": ("completion",),
}
"""Module -> its commands that have no noun. Each module lists its commands in `COMMANDS`."""

NOUNS = ("nodes", "policy", "projects", "context", "token", "config", "store", "history")
"""Modules that are nouns: their commands are verbs, and `HELP` describes the noun."""

SECTIONS = {
    "Jobs": ("submit", "edit", *VERBS["jobs"], "logs"),
    "Running jobs": (*VERBS["exec"], "report"),
    "Daemon and nodes": (
        *VERBS["daemon"],
        "nodes",
        "policy",
        "projects",
        "token",
        "config",
        "store",
    ),
    "Other commands": ("context", "history", "simulate", "completion"),
}
"""The commands and nouns under the headings of the help."""

WITHOUT_DAEMON = frozenset({"up", "simulate", "completion", "context", "projects", "store"})
"""Commands and nouns that contact no daemon, and so take no `--context`."""
DEFAULT_VERBS = ("list", "show")
"""Verbs that read only and need no argument. A noun without a verb means the first it has."""

HELP = "Schedule training jobs on shared GPUs."
EPILOG = (
    "Exit codes: 0 success, 1 failure, 2 wrong input, 130 interrupted. "
    "'wait' and 'submit --wait' exit with the job's code, 'exec' with the command's."
)
VERSION = flag("--version", name="version", text="Show the version.")
MODULE_OF = {verb: module for module, verbs in VERBS.items() for verb in verbs}
NAMES = (*MODULE_OF, *NOUNS)


def run_command(words: Sequence[str]) -> int:
    """Run the command that the words name and return its exit code."""
    from rota.cli.output.console import print_out

    context, words = _global_options(list(words))
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if not words or words[0] in HELP_NAMES:
        print_out(_root_help())
        return 0
    if words[0] == "--version":
        from rota import __version__

        print_out(f"rota {__version__}")
        return 0
    name, words = words[0], words[1:]
    if name.startswith("-"):
        known = [*VERSION.flags, *CONTEXT.flags]
        raise unknown_option("rota", name, known=known)
    if name in NOUNS:
        return _run_noun(name, words, context=context)
    if name not in MODULE_OF:
        raise unknown_command("rota", name, known=NAMES)
    return _run(name, command_named(name), words=words, context=context)


def commands_of(noun: str) -> tuple[Command, ...]:
    """The verbs of a noun."""
    return _module(noun).COMMANDS


def help_of(noun: str) -> str:
    return _module(noun).HELP


def command_named(name: str) -> Command:
    """A command that has no noun."""
    return next(each for each in _module(MODULE_OF[name]).COMMANDS if each.name == name)


def with_context(name: str, command: Command) -> Command:
    """The command with `--context`, if it contacts a daemon. `name` is its noun, or its own name if
    it has no noun."""
    return command if name in WITHOUT_DAEMON else command.with_option(CONTEXT)


def default_verb(noun: str) -> str:
    """The default verb of a noun: `rota nodes` runs `rota nodes list`. Empty if it has none."""
    verbs = [each.name for each in commands_of(noun)]
    return next((each for each in DEFAULT_VERBS if each in verbs), "")


def _module(name: str) -> ModuleType:
    return import_module(f"{PACKAGE}.{name}")


def _global_options(words: list[str]) -> tuple[str, list[str]]:
    """The context that is given before the command, and the words from the command on."""
    context = ""
    while words and words[0].partition("=")[0] in CONTEXT.flags:
        flag, has_value, context = words[0].partition("=")
        if not has_value and len(words) < 2:
            raise UsageError("rota", f"option '{flag}' requires a value")
        context, words = (context, words[1:]) if has_value else (words[1], words[2:])
    return context, words


def _run_noun(noun: str, words: list[str], *, context: str) -> int:
    from rota.cli.output.console import print_out

    verb = default_verb(noun)
    if words and words[0] in HELP_NAMES:
        print_out(_noun_help(noun, verb))
        return 0
    if not words or words[0].startswith("-"):
        if not verb:
            raise UsageError(f"rota {noun}", "missing command")
        words = [verb, *words]
    commands = {each.name: each for each in commands_of(noun)}
    if words[0] not in commands:
        raise unknown_command(f"rota {noun}", words[0], known=list(commands))
    return _run(noun, commands[words[0]], words=words[1:], context=context)


def _run(name: str, command: Command, *, words: Sequence[str], context: str) -> int:
    from rota.cli.output.console import print_out, use_json_errors

    path = " ".join(dict.fromkeys(("rota", name, command.name)))
    command = with_context(name, command)
    if is_help(command, words):
        from rota.cli.help import command_help

        print_out(command_help(command, path=path))
        return 0
    use_json_errors(is_json="--json" in words[: program_start(command, words)])
    values = parse(command, words, path=path)
    if name not in WITHOUT_DAEMON:
        context = values.pop("context") or context
    if context:
        from rota.client.endpoint import requested_context

        requested_context.set(context)
    return command.run(**values) or 0


def _root_help() -> str:
    from rota.cli.help import group_help

    summaries = {name: command_named(name).summary for name in MODULE_OF}
    summaries |= {noun: help_of(noun) for noun in NOUNS}
    sections = {
        title: [(name, summaries[name]) for name in names] for title, names in SECTIONS.items()
    }
    return group_help("rota", HELP, options=[VERSION, CONTEXT], sections=sections, epilog=EPILOG)


def _noun_help(noun: str, verb: str) -> str:
    from rota.cli.help import group_help

    rows = [(each.name, each.summary) for each in commands_of(noun)]
    epilog = f"'rota {noun}' is short for 'rota {noun} {verb}'." if verb else ""
    return group_help(
        f"rota {noun}",
        help_of(noun),
        options=[],
        sections={"Commands": rows},
        epilog=epilog,
    )
