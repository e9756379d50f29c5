"""When a node may be asked for a log: gently, and never before those who command.

Each opening costs the API server a connection to a node. They come one after the other, fewer
while none succeeds. A node that has given nothing yet is asked by one at a time; one that refused
is left alone by all, for longer each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

PACE_S, SLOWEST_PACE_S = 0.02, 2.0
"""Between two openings; twice as long after each that was refused."""
UNSURE_S = 2.0
"""A program that is silent says nothing about its node: so long others wait to see it refused."""
SILENT_S, LONGEST_SILENT_S = 15.0, 60.0


@dataclass(slots=True)
class _Node:
    n_refused: int = 0
    speaks: bool = False
    tried_until_s: float = 0.0
    silent_until_s: float = 0.0

    def closed_until_s(self, *, is_pressing: bool) -> float:
        is_new = is_pressing and not self.n_refused
        return self.silent_until_s if is_new else max(self.silent_until_s, self.tried_until_s)


class LogLane:
    """`lull` returns when those who command have nothing to ask for, or after a while."""

    def __init__(self, lull: Callable[[], Awaitable[None]]) -> None:
        self._lull = lull
        self._nodes: dict[str, _Node] = {}
        self._pace_s = PACE_S
        self._turn = asyncio.Lock()

    async def wait(self, name: str, *, is_pressing: bool) -> None:
        """Until a log of this node may be asked for. What is pressing, because somebody waits for
        it or it will soon be gone, is held up by nothing but the node's own refusals."""
        node = self._nodes.setdefault(name, _Node())
        while True:
            left_s = node.closed_until_s(is_pressing=is_pressing) - _now()
            if left_s > 0:
                await asyncio.sleep(left_s)
                continue
            if is_pressing:
                break
            async with self._turn:
                await self._lull()
                await asyncio.sleep(self._pace_s)
                if node.closed_until_s(is_pressing=False) <= _now():
                    break
        node.tried_until_s = 0.0 if node.speaks else _now() + UNSURE_S

    def heard(self, name: str) -> None:
        node = self._nodes.setdefault(name, _Node())
        node.n_refused, node.speaks = 0, True
        node.tried_until_s = node.silent_until_s = 0.0
        self._pace_s = PACE_S

    def refused(self, name: str) -> None:
        node = self._nodes.setdefault(name, _Node())
        pause_s = min(LONGEST_SILENT_S, SILENT_S * (node.n_refused + 1))
        node.n_refused, node.speaks = node.n_refused + 1, False
        node.silent_until_s = _now() + pause_s
        self._pace_s = min(SLOWEST_PACE_S, 2 * self._pace_s)


def _now() -> float:
    return asyncio.get_running_loop().time()
