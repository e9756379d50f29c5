"""Nodes: their GPUs, other resources, labels and taints."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NewType

DEFAULT_GPU_MEMORY_BYTES = 16 * 1024**3


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    type: str
    memory_bytes: int = DEFAULT_GPU_MEMORY_BYTES


@dataclass(frozen=True, slots=True)
class NodeAllocatable:
    """The resources of a node when the node is healthy and nothing else uses it."""

    gpus: tuple[Gpu, ...] = ()
    cpus: float = math.inf
    memory_bytes: float = math.inf
    max_workers: float = math.inf


Taints = tuple[frozenset[str], ...]
DEFAULT_TOLERATIONS = frozenset({""})
"""The tolerations of jobs that specify none; the same for all of them."""


def tolerates(words: frozenset[str], taints: Taints) -> bool:
    """Whether a job with these tolerations may run on a node with these taints. Each taint is the
    set of tolerations that match it."""
    return not any(words.isdisjoint(taint) for taint in taints)


NodeId = NewType("NodeId", str)
Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with its GPUs and the other resources that workers use.

    An administrator may drain a node: its workers move to other nodes. The cluster may cordon a
    node: its workers keep running. Neither accepts new workers.
    """

    id: NodeId
    gpus: tuple[Gpu, ...] = ()
    cpus: float = math.inf
    memory_bytes: float = math.inf
    max_workers: float = math.inf
    labels: Labels = frozenset()
    is_draining: bool = False
    is_cordoned: bool = False
    note: str = ""
    """What is wrong with the node, if anything."""
    whole: NodeAllocatable | None = None
    """The node's full resources, if they are more than the resources available now; a job that
    needs them waits."""
    taints: Taints = ()
    """Only a job that tolerates all of them may run here."""
    missing_gpus: frozenset[int] = frozenset()
    """Those of `gpus` that the machine does not see now, while workers hold them. The workers keep
    running, and no new worker gets the GPUs."""

    @property
    def is_closed(self) -> bool:
        """Whether the node accepts no new workers."""
        return self.is_draining or self.is_cordoned

    def is_closed_for(self, gpus: Iterable[int]) -> bool:
        """Whether no new worker may get these GPUs."""
        return self.is_draining or self.cordons(gpus)

    def cordons(self, gpus: Iterable[int]) -> bool:
        """Whether workers on these GPUs may only stay: the node is cordoned or GPUs are missing."""
        return self.is_cordoned or not self.missing_gpus.isdisjoint(gpus)
