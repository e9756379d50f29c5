"""Completes commands, options and their values when the user presses Tab.

The shell waits for the result and shows everything that is printed. So a slow daemon gives no
suggestions, and every error is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.cli.command import Command, CommandOption
    from rota.client import Client
    from rota.wire.job_view import JobView

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
    """The user's own jobs, those that have not ended first: ids, and names that mean one job."""
    from rota.client import Client
    from rota.wire.job_view import LIVE_STATES

    def fetch(rota: Client) -> Suggestions:
        found = rota.jobs(user=rota.me(), limit=MAX_JOBS, skip=0).jobs
        live = [job for job in found if job.state in LIVE_STATES]
        ended = [job for job in found if job.state not in LIVE_STATES]
        return [*_names_and_ids(live, live), *_names_and_ids(ended, found)]

    return _matching(lambda: fetch(Client(answer_s=ANSWER_TIMEOUT_S)), incomplete)


def _names_and_ids(jobs: Sequence[JobView], others: Sequence[JobView]) -> Suggestions:
    """The names that no other job has, then the ids."""
    names = [job.name for job in others]
    by_name = [(job.name, f"{job.id} {job.state}") for job in jobs if names.count(job.name) < 2]
    return [*by_name, *((job.id, f"{job.name} {job.state}") for job in jobs)]


def projects(incomplete: str) -> Suggestions:
    """The projects of the daemon's usage, and those of the newest jobs."""
    from rota.client import Client

    def fetch(rota: Client) -> Suggestions:
        used = [each.project for each in rota.status().usage]
        recent = [job.project for job in rota.jobs(limit=MAX_JOBS).jobs]
        return [(name, "") for name in sorted({*used, *recent}) if name]

    return _matching(lambda: fetch(Client(answer_s=ANSWER_TIMEOUT_S)), incomplete)


def policies(incomplete: str) -> Suggestions:
    from rota.policies.registry import names

    return _matching(lambda: [(name, "") for name in names()], incomplete)


def choices(words: Sequence[str]) -> Callable[[str], Suggestions]:
    """A completer of fixed words."""
    return lambda incomplete: _matching(lambda: [(word, "") for word in words], incomplete)


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
    """States, also after others and a comma: `running,que`."""
    from rota.wire.job_view import STATES

    before, comma, _ = incomplete.rpartition(",")
    return _matching(lambda: [(f"{before}{comma}{state}", "") for state in STATES], incomplete)


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
    """The values of an option that waits for its value; else options or arguments. The words of a
    program to run are completed by the shell, as names of files."""
    from rota.cli.command import program_start

    if program_start(command, words) < len(words):
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
