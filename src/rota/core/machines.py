"""Machines and their GPUs, as the scheduler sees them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NewType

NodeId = NewType("NodeId", str)

Labels = frozenset[tuple[str, str]]
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    type: str
    memory_bytes: int = 16 * GIB


@dataclass(frozen=True, slots=True)
class Whole:
    """What a node has once nobody but us uses it, and it answers."""

    gpus: tuple[Gpu, ...] = ()
    cpus: float = math.inf
    memory_bytes: float = math.inf
    max_workers: float = math.inf


@dataclass(frozen=True, slots=True)
class Node:
    """A machine: its GPUs, and what else its workers use up. An administrator may drain it, and the
    cluster that it belongs to may close it: nothing new goes there, and what runs moves off."""

    id: NodeId
    gpus: tuple[Gpu, ...] = ()
    cpus: float = math.inf
    memory_bytes: float = math.inf
    max_workers: float = math.inf
    labels: Labels = frozenset()
    is_draining: bool = False
    is_cordoned: bool = False
    note: str = ""
    """What is the matter with it, if something is."""
    whole: Whole | None = None
    """Where that is more than there is now: a job that needs it waits."""

    def at_best(self) -> Node:
        best = self.whole
        if best is None:
            return self
        room = {"cpus": best.cpus, "memory_bytes": best.memory_bytes}
        return replace(self, gpus=best.gpus, max_workers=best.max_workers, whole=None, **room)

    @property
    def is_closed(self) -> bool:
        return self.is_draining or self.is_cordoned
