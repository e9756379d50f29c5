"""Completes jobs, nodes, states and contexts when the user presses Tab in a shell.

The shell waits for the result and shows everything that is printed. So a slow daemon gives no
suggestions, and every error is silent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.client import Client

Suggestions = list[tuple[str, str]]
"""Pairs of a word and its description."""

ANSWER_TIMEOUT_S = 1.0
MAX_JOBS = 100


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
    from rota.client.contexts import LOCAL, read

    def known() -> Suggestions:
        return [(name, each.url) for name, each in read().contexts.items()]

    return _matching(lambda: [*known(), (LOCAL, "this machine")], incomplete)


def states(incomplete: str) -> Suggestions:
    from rota.wire.jobs import STATES

    return _matching(lambda: [(state, "") for state in STATES], incomplete)


def _matching(find: Callable[[], Suggestions], incomplete: str) -> Suggestions:
    try:
        return [each for each in find() if each[0].startswith(incomplete)]
    except Exception:  # noqa: BLE001 - an error message would break the shell's prompt
        return []
