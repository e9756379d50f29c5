"""Counts the open connections, and shares them fairly between their holders.

The holder of a connection is the user of its requests; before the first authenticated request, the
uid of its Unix socket or its host. Above the limit of all connections, the largest holder loses
one, never the newcomer: a user who opens many connections keeps out no other user.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from rota.config.limits import DEFAULT_LIMITS

CONNECTIONS_MAX = 2000
"""Of all holders together."""


class Connection(Protocol):
    def hang_up(self) -> None: ...


@dataclass(slots=True)
class _Held:
    """The connections of one holder: those without a request, and those with one. The one that has
    been in its state for longest comes first."""

    idle: dict[Connection, None] = field(default_factory=dict["Connection", None])
    busy: dict[Connection, None] = field(default_factory=dict["Connection", None])

    def __len__(self) -> int:
        return len(self.idle) + len(self.busy)

    def remove(self, one: Connection) -> None:
        self.idle.pop(one, None)
        self.busy.pop(one, None)


class ConnectionLimiter:
    """Above a limit, a holder loses the connection that has been idle for longest, else the one
    whose request began first."""

    def __init__(
        self,
        most: int | None = None,
        *,
        most_of_user: int = DEFAULT_LIMITS.max_connections,
    ) -> None:
        self._most = _max_connections() if most is None else most
        self._most_of_user = most_of_user
        self._holders: dict[str, _Held] = {}
        self._holder_of: dict[Connection, str] = {}

    def n_open(self, holder: str) -> int:
        held = self._holders.get(holder)
        return 0 if held is None else len(held)

    def add(self, one: Connection, holder: str) -> None:
        self._put(one, holder)
        if len(self._holder_of) > self._most:
            largest = max(self._holders.values(), key=len)
            self._close_one(largest, newcomer=one)

    def assign(self, one: Connection, holder: str) -> None:
        """The connection carries a request of this holder."""
        if self._holder_of.get(one, holder) != holder:
            self.remove(one)
            self._put(one, holder)
            self.mark_busy(one)

    def mark_busy(self, one: Connection) -> None:
        held = self._held(one)
        if held is not None:
            held.remove(one)
            held.busy[one] = None

    def mark_idle(self, one: Connection) -> None:
        held = self._held(one)
        if held is not None:
            held.remove(one)
            held.idle[one] = None

    def remove(self, one: Connection) -> None:
        holder = self._holder_of.pop(one, None)
        if holder is None:
            return
        held = self._holders[holder]
        held.remove(one)
        if not held:
            del self._holders[holder]

    def _held(self, one: Connection) -> _Held | None:
        holder = self._holder_of.get(one)
        return None if holder is None else self._holders[holder]

    def _put(self, one: Connection, holder: str) -> None:
        held = self._holders.setdefault(holder, _Held())
        held.idle[one] = None
        self._holder_of[one] = holder
        if len(held) > self._most_of_user:
            self._close_one(held, newcomer=one)

    def _close_one(self, held: _Held, *, newcomer: Connection) -> None:
        others = (one for one in chain(held.idle, held.busy) if one is not newcomer)
        one = next(others, newcomer)
        self.remove(one)
        one.hang_up()


def _max_connections() -> int:
    """The limit of connections: at most half of the files that the process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS_MAX
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, soft // 2)
