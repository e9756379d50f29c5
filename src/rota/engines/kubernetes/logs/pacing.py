"""Limit how fast logs are requested, so that they never delay commands or overload a slow node.

Each log stream costs the API server a connection to a node. Streams open one after the other,
and more slowly while requests fail. A node that has not delivered output yet gets one request at
a time; a node that refused gets none for a growing time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

PACE_S, MAX_PACE_S = 0.02, 2.0
"""The pause between two streams; doubled after each refusal."""
FIRST_OUTPUT_S = 2.0
"""How long other streams of a node wait for the first one. A program without output tells
nothing about its node, so the wait is limited."""
BACKOFF_S, MAX_BACKOFF_S = 15.0, 60.0


@dataclass(slots=True)
class _NodePace:
    n_refused: int = 0
    has_delivered: bool = False
    tried_until_s: float = 0.0
    backoff_until_s: float = 0.0

    def closed_until_s(self, *, is_urgent: bool) -> float:
        is_new = is_urgent and not self.n_refused
        return self.backoff_until_s if is_new else max(self.backoff_until_s, self.tried_until_s)


class LogPacer:
    """`wait_idle` returns when no command waits for the API server, or after a timeout."""

    def __init__(self, wait_idle: Callable[[], Awaitable[None]]) -> None:
        self._wait_idle = wait_idle
        self._nodes: dict[str, _NodePace] = {}
        self._pace_s = PACE_S
        self._lock = asyncio.Lock()

    async def wait(self, name: str, *, is_urgent: bool) -> None:
        """Wait until a log of this node may be requested. Urgent requests (a user waits, or the
        pod will soon be deleted) wait only for the back-off of the node."""
        node = self._nodes.setdefault(name, _NodePace())
        while True:
            delay_s = node.closed_until_s(is_urgent=is_urgent) - _now()
            if delay_s > 0:
                await asyncio.sleep(delay_s)
                continue
            if is_urgent:
                break
            async with self._lock:
                await self._wait_idle()
                await asyncio.sleep(self._pace_s)
                if node.closed_until_s(is_urgent=False) <= _now():
                    break
        node.tried_until_s = 0.0 if node.has_delivered else _now() + FIRST_OUTPUT_S

    def delivered(self, name: str) -> None:
        """The node delivered output or ended a stream: no delay any more."""
        node = self._nodes.setdefault(name, _NodePace())
        node.n_refused, node.has_delivered = 0, True
        node.tried_until_s = node.backoff_until_s = 0.0
        self._pace_s = PACE_S

    def refused(self, name: str) -> None:
        """The node refused: back off."""
        node = self._nodes.setdefault(name, _NodePace())
        pause_s = min(MAX_BACKOFF_S, BACKOFF_S * (node.n_refused + 1))
        node.n_refused, node.has_delivered = node.n_refused + 1, False
        node.backoff_until_s = _now() + pause_s
        self._pace_s = min(MAX_PACE_S, 2 * self._pace_s)


def _now() -> float:
    return asyncio.get_running_loop().time()
