"""The name of an array stands for all its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rota.errors import UserError, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.client import Client
    from rota.wire.jobs import JobView

T = TypeVar("T")
PAGE = 1000


def array(rota: Client, name: str) -> list[JobView]:
    """The jobs of one's newest array of this name, in the order of their submit."""
    user = rota.me()
    found: list[JobView] = []
    before: int | None = None
    while True:
        page = rota.jobs(user=user, word=f"{name}[", before=before, limit=PAGE)
        # An array is submitted at one moment.
        moment = (found or page.jobs)[0].submitted_s if found or page.jobs else 0.0
        same = [job for job in page.jobs if job.submitted_s == moment]
        found += same
        before = page.next
        if before is None or len(same) < len(page.jobs):
            return found[::-1]


def is_array(error: UserError) -> bool:
    """Whether the daemon refused because one job was wanted, and an array was named."""
    return error.code == "array"


def expanded(rota: Client, name: str) -> list[str]:
    """The ids of an array's jobs that are not over."""
    from rota.wire.jobs import LIVE_STATES

    live = [job.id for job in array(rota, name) if job.state in LIVE_STATES]
    if not live:
        raise UserError(f"all jobs of '{shown(name)}' are over", "'rota show' lists them")
    return live


def for_all(rota: Client, word: str, *, deed: Callable[[str], T]) -> list[T]:
    """What a deed answers for a job, or for every job of an array."""
    try:
        return [deed(word)]
    except UserError as error:
        if not is_array(error):
            raise
    return [deed(job.id) for job in array(rota, word)]
