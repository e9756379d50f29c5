"""Signal all processes of a tree that may still be growing."""

from __future__ import annotations

import signal
from collections.abc import Callable

from rota.engines.local.supervisor import proc

Members = Callable[[], proc.ProcessTable]
PASSES_MAX = 1000
"""Bound for a tree that grows faster than it can be walked; the caller retries anyway."""


def terminate_all(members: Members) -> int:
    """Send SIGTERM to every process of the tree and return their number. SIGCONT follows, because a
    stopped process (SIGSTOP) handles no SIGTERM."""
    return _signal_all(members, (signal.SIGTERM, signal.SIGCONT))


def hang_up(members: Members) -> int:
    """Send SIGHUP to every process of the tree, as when a terminal closes."""
    return _signal_all(members, (signal.SIGHUP, signal.SIGCONT))


def kill_all(members: Members) -> int:
    """Send SIGKILL to every process of the tree. SIGSTOP goes first: a stopped process starts no
    others, so that the walk ends even if the tree was growing."""
    _signal_all(members, (signal.SIGSTOP,))
    return _signal_all(members, (signal.SIGKILL,))


def _signal_all(members: Members, numbers: tuple[int, ...]) -> int:
    reached: set[tuple[int, int]] = set()
    for _ in range(PASSES_MAX):
        new = [each for each in members().items() if each not in reached]
        if not new:
            break
        for pid, start_ticks in new:
            for number in numbers:
                proc.send(pid, start_ticks, number=number)
        reached.update(new)
    return len(reached)
