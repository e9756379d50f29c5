"""Rules for cordoned nodes: workers there keep running, and no new worker starts there.

A job that resizes in place may give up slots on a cordoned node, or take more slots elsewhere. Any
other job would have to stop for a new size and could not return to the node, so it keeps its size.
"""

from __future__ import annotations

from collections.abc import Mapping

from rota.core.model.allocation import Allocation, Slot
from rota.core.model.job import Job, Running, Starting
from rota.core.model.node import Node, NodeId

Nodes = Mapping[NodeId, Node]


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
