"""What a shell offers after Tab: jobs, nodes, states, contexts. Where nobody answers soon, nothing.

A shell waits while this runs and shows whatever it prints, so that every error is silent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.client import Client

Offers = list[tuple[str, str]]

SOON_S = 1.0
MOST = 100


def jobs(incomplete: str) -> Offers:
    """One's own jobs, by name where only one has it, else by id."""
    from rota.client import Client

    def ask(rota: Client) -> Offers:
        found = rota.jobs(user=rota.me(), limit=MOST).jobs
        names = [job.name for job in found]
        by_name = [
            (job.name, f"{job.id} {job.state}") for job in found if names.count(job.name) < 2
        ]
        by_id = [(job.id, f"{job.name} {job.state}") for job in found]
        return [*by_name, *by_id]

    return _offered(lambda: ask(Client(answer_s=SOON_S)), incomplete)


def nodes(incomplete: str) -> Offers:
    from rota.client import Client

    return _offered(lambda: [(node.id, "") for node in Client(answer_s=SOON_S).nodes()], incomplete)


def contexts(incomplete: str) -> Offers:
    from rota.client.contexts import LOCAL, read

    def known() -> Offers:
        return [(name, each.url) for name, each in read().contexts.items()]

    return _offered(lambda: [*known(), (LOCAL, "this machine")], incomplete)


def states(incomplete: str) -> Offers:
    from rota.wire.jobs import STATES

    return _offered(lambda: [(state, "") for state in STATES], incomplete)


def _offered(find: Callable[[], Offers], incomplete: str) -> Offers:
    try:
        return [offer for offer in find() if offer[0].startswith(incomplete)]
    except Exception:  # noqa: BLE001 - whatever it is, the prompt is no place to tell it
        return []
