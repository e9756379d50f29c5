"""Rules for cordoned nodes: workers there keep running, and no new worker starts there.

A job that resizes in place may give up slots on a cordoned node, or take more slots elsewhere. Any
other job would have to stop for a new size and could not return to the node, so it keeps its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.core.model.allocation import Allocation, Slot
from rota.core.model.job import Job, JobId, Running, Starting
from rota.core.model.node import Node, NodeId
from rota.core.scheduling.view import View

Nodes = Mapping[NodeId, Node]


@dataclass(frozen=True, slots=True)
class CordonedSlots:
    """The slots that jobs hold on cordoned nodes."""

    slots: Mapping[JobId, int] = field(default_factory=dict[JobId, int])
    cards: Mapping[str, Mapping[tuple[NodeId, int], int]] = field(
        default_factory=dict[str, Mapping[tuple[NodeId, int], int]]
    )
    """By GPU type: the GPUs that these jobs hold, with the memory of each."""


def may_keep_slot(job: Job, slot: Slot, *, nodes: Nodes) -> bool:
    """Whether the node allows the job to stay, or to be planned, in this slot."""
    node = nodes.get(slot.node)
    if node is None or node.is_draining:
        return False
    return not node.is_cordoned or occupies_slot(job, slot)


def occupies_slot(job: Job, slot: Slot) -> bool:
    return isinstance(job.phase, Starting | Running) and slot in job.members


def is_size_frozen(job: Job, allocation: Allocation, *, nodes: Nodes) -> bool:
    """Whether a new size would cost the job its slots on cordoned nodes."""
    if job.spec.mode.resizes_in_place:
        return False
    return any(slot.node in nodes and nodes[slot.node].is_cordoned for slot in allocation)


def cordoned_slots(view: View) -> CordonedSlots:
    cordoned = {
        node_id: node
        for node_id, node in view.nodes.items()
        if node.is_cordoned and not node.is_draining
    }
    slots: dict[JobId, int] = {}
    cards: dict[str, dict[tuple[NodeId, int], int]] = {}
    for job in view.jobs if cordoned else ():
        here = [
            slot
            for slot in view.planned.get(job.id, ())
            if slot.node in cordoned and occupies_slot(job, slot)
        ]
        if here:
            slots[job.id] = len(here)
        for slot in here:
            for gpu in cordoned[slot.node].gpus:
                if gpu.index in slot.gpus:
                    cards.setdefault(gpu.type, {})[slot.node, gpu.index] = gpu.memory_bytes
    return CordonedSlots(slots, cards)
