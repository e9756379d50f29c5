"""Ending a tree of processes that may still be growing."""

from __future__ import annotations

import signal
from collections.abc import Callable

from rota.engines.local import procs

Members = Callable[[], procs.Found]
PASSES_MAX = 1000
"""A bound for a tree that grows faster than it is walked; the caller comes back anyway."""


def ask_to_end(members: Members) -> int:
    """SIGTERM to every process of the tree; how many there were. Those that stand still (SIGSTOP)
    are woken to hear it."""
    return _reach_all(members, (signal.SIGTERM, signal.SIGCONT))


def hang_up(members: Members) -> int:
    """SIGHUP to every process of the tree, as when a terminal goes away."""
    return _reach_all(members, (signal.SIGHUP, signal.SIGCONT))


def end(members: Members) -> int:
    """SIGKILL to every process of the tree. They are all stopped first: a process that stands
    still starts no others, so that the walk ends although the tree was growing."""
    _reach_all(members, (signal.SIGSTOP,))
    return _reach_all(members, (signal.SIGKILL,))


def _reach_all(members: Members, numbers: tuple[int, ...]) -> int:
    reached: set[tuple[int, int]] = set()
    for _ in range(PASSES_MAX):
        new = [each for each in members().items() if each not in reached]
        if not new:
            break
        for pid, start_ticks in new:
            for number in numbers:
                procs.send(pid, start_ticks, number=number)
        reached.update(new)
    return len(reached)
