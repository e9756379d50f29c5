"""Nodes that are closed to newcomers: whoever runs there goes on, and nobody else is let in. Pure.

A job that changes its size in place may give seats there up, or take others elsewhere. Any other
one could not come back after the stop that a new size needs: it stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.core.model import Allocation, Job, JobId, Node, NodeId, Running, Slot, Starting
from rota.core.view import View

Nodes = Mapping[NodeId, Node]


@dataclass(frozen=True, slots=True)
class Sitters:
    """Who sits on nodes that take nobody else."""

    seats: Mapping[JobId, int] = field(default_factory=dict[JobId, int])
    cards: Mapping[str, Mapping[tuple[NodeId, int], int]] = field(
        default_factory=dict[str, Mapping[tuple[NodeId, int], int]]
    )
    """By GPU type: the cards that they hold there, and how large each is."""


def keeps(job: Job, slot: Slot, *, nodes: Nodes) -> bool:
    """Whether the job may go on, or be planned, in this slot, as far as its node is concerned."""
    node = nodes.get(slot.node)
    if node is None or node.is_draining:
        return False
    return not node.is_cordoned or sits(job, slot)


def sits(job: Job, slot: Slot) -> bool:
    return isinstance(job.phase, Starting | Running) and slot in job.members


def is_stuck(job: Job, allocation: Allocation, *, nodes: Nodes) -> bool:
    """Whether it could not have another size without losing its seats."""
    if job.spec.mode.resizes_in_place:
        return False
    return any(slot.node in nodes and nodes[slot.node].is_cordoned for slot in allocation)


def sitters(view: View) -> Sitters:
    cordoned = {
        node_id: node
        for node_id, node in view.nodes.items()
        if node.is_cordoned and not node.is_draining
    }
    seats: dict[JobId, int] = {}
    cards: dict[str, dict[tuple[NodeId, int], int]] = {}
    for job in view.jobs if cordoned else ():
        here = [
            slot
            for slot in view.planned.get(job.id, ())
            if slot.node in cordoned and sits(job, slot)
        ]
        if here:
            seats[job.id] = len(here)
        for slot in here:
            for gpu in cordoned[slot.node].gpus:
                if gpu.index in slot.gpus:
                    cards.setdefault(gpu.type, {})[slot.node, gpu.index] = gpu.memory_bytes
    return Sitters(seats, cards)
