"""Completes commands, options, jobs, nodes, states and contexts when the user presses Tab.

The shell waits for the result and shows everything that is printed. So a slow daemon gives no
suggestions, and every error is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.cli.command import Command, CommandOption
    from rota.client import Client

Suggestions = list[tuple[str, str]]
"""Pairs of a word and its description."""

ANSWER_TIMEOUT_S = 1.0
MAX_JOBS = 100


def suggestions(words: Sequence[str], *, shell: str) -> str:
    """The suggestions for the last word, one per line, in the format of the shell's script."""
    *before, incomplete = words or [""]
    found = _matching(lambda: _suggest(list(before), incomplete), incomplete)
    if shell == "zsh":
        return "\n".join(f"{word.replace(':', chr(92) + ':')}:{text}" for word, text in found)
    if shell == "fish":
        return "\n".join(f"{word}\t{text}" for word, text in found)
    return "\n".join(word for word, _ in found)


def jobs(incomplete: str) -> Suggestions:
    """The user's own jobs: every id, and every name that only one job has."""
    from rota.client import Client

    def fetch(rota: Client) -> Suggestions:
        found = rota.jobs(user=rota.me(), limit=MAX_JOBS).jobs
        names = [job.name for job in found]
        by_name = [
            (job.name, f"{job.id} {job.state}") for job in found if names.count(job.name) < 2
        ]
        by_id = [(job.id, f"{job.name} {job.state}") for job in found]
        return [*by_name, *by_id]

    return _matching(lambda: fetch(Client(answer_s=ANSWER_TIMEOUT_S)), incomplete)


def nodes(incomplete: str) -> Suggestions:
    from rota.client import Client

    def fetch(rota: Client) -> Suggestions:
        return [(node.id, "") for node in rota.nodes()]

    return _matching(lambda: fetch(Client(answer_s=ANSWER_TIMEOUT_S)), incomplete)


def contexts(incomplete: str) -> Suggestions:
    from rota.client.contexts import read
    from rota.config.paths import LOCAL

    def known() -> Suggestions:
        return [(name, each.url) for name, each in read().contexts.items()]

    return _matching(lambda: [*known(), (LOCAL, "this machine")], incomplete)


def states(incomplete: str) -> Suggestions:
    from rota.wire.job_view import STATES

    return _matching(lambda: [(state, "") for state in STATES], incomplete)


def _matching(find: Callable[[], Suggestions], incomplete: str) -> Suggestions:
    try:
        return [each for each in find() if each[0].startswith(incomplete)]
    except Exception:  # noqa: BLE001 - an error message would break the shell's prompt
        return []


def _suggest(before: list[str], incomplete: str) -> Suggestions:
    from rota.cli import app

    if not before:
        nouns = [(noun, app.help_of(noun)) for noun in app.NOUNS]
        return [*((name, app.command_named(name).summary) for name in app.MODULE_OF), *nouns]
    name, *words = before
    if name in app.MODULE_OF:
        return _parameters(
            app.with_context(name, app.command_named(name)), words, incomplete=incomplete
        )
    verbs = {each.name: each for each in app.commands_of(name)}
    if not words:
        return [(verb, each.summary) for verb, each in verbs.items()]
    return _parameters(app.with_context(name, verbs[words[0]]), words[1:], incomplete=incomplete)


def _parameters(command: Command, words: list[str], *, incomplete: str) -> Suggestions:
    """The values of an option that waits for its value; else options or arguments."""
    if "--" in words:
        return []
    options = {flag: option for option in command.options for flag in option.flags}
    if words and (option := options.get(words[-1])) and option.parse is not None:
        return option.complete(incomplete) if option.complete else []
    if incomplete.startswith("-"):
        return [(name, each.text) for name, each in options.items() if name.startswith("--")]
    position = _arguments_before(words, options)
    arguments = command.arguments[position:] or [
        each for each in command.arguments[-1:] if each.is_repeatable
    ]
    complete = arguments[0].complete if arguments else None
    return complete(incomplete) if complete else []


def _arguments_before(words: list[str], options: dict[str, CommandOption]) -> int:
    """The number of arguments among the words."""
    count, is_value = 0, False
    for word in words:
        option = options.get(word)
        count += not is_value and not word.startswith("-")
        is_value = option is not None and option.parse is not None
    return count
