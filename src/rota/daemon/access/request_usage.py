"""Counts the bytes of stored requests of each user, so that no user fills the disk with them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from rota.daemon.errors import LimitError
from rota.store.interface import Store
from rota.store.records import Submission
from rota.thread_pools import STORE

RECOUNT_S = 3600.0
"""Deleted jobs are counted until the next count. Retention deletes jobs as often."""


class RequestUsage:
    """Reads the sums from the store at the first use, and again from time to time; in between it
    adds what is submitted."""

    def __init__(self, store: Store, *, most_bytes: int) -> None:
        self._store = store
        self._most_bytes = most_bytes
        self._n_bytes: Counter[str] | None = None
        self._counted_s = 0.0

    async def require_room(self, user: str) -> None:
        if await self.of(user) >= self._most_bytes:
            raise LimitError(
                f"your stored requests have {self._most_bytes:,} bytes or more",
                "use --array for equal jobs, and files instead of long arguments and variables",
                setting="max_request_bytes",
            )

    async def of(self, user: str) -> int:
        """The stored bytes of a user."""
        now = time.monotonic()
        if self._n_bytes is None or now - self._counted_s > RECOUNT_S:
            self._counted_s = now
            self._n_bytes = Counter(await STORE.run(self._store.request_bytes))
        return self._n_bytes[user]

    def add(self, submissions: Iterable[Submission]) -> None:
        if self._n_bytes is None:
            return
        counted: set[str] = set()
        for each in submissions:
            common = "" if each.common in counted else each.common
            counted.add(each.common)
            self._n_bytes[each.user] += len(each.program) + len(common)
