"""Rules for cordoned nodes and missing GPUs: workers there keep running, and no new worker starts
there.

A job that resizes in place may give up slots on a cordoned node, or take more slots elsewhere. Any
other job would have to stop for a new size and could not return to the node, so it keeps its size.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from rota.core.model.allocation import Allocation, Slot
from rota.core.model.job import Job, JobId, Running, Starting
from rota.core.model.node import Node, NodeId

Nodes = Mapping[NodeId, Node]


def may_keep_slot(job: Job, slot: Slot, *, nodes: Nodes) -> bool:
    """Whether the node allows the job to stay, or to be planned, in this slot."""
    node = nodes.get(slot.node)
    if node is None or node.is_draining:
        return False
    return not node.cordons(slot.gpus) or occupies_slot(job, slot)


def occupies_slot(job: Job, slot: Slot) -> bool:
    return isinstance(job.phase, Starting | Running) and slot in job.members


def is_size_frozen(job: Job, allocation: Allocation, *, nodes: Nodes) -> bool:
    """Whether a new size would cost the job its slots on cordoned nodes or missing GPUs."""
    if job.spec.mode.resizes_in_place:
        return False
    return any(slot.node in nodes and nodes[slot.node].cordons(slot.gpus) for slot in allocation)


def held_under_cordon(
    jobs: Iterable[Job], planned: Mapping[JobId, Allocation], *, nodes: Nodes
) -> tuple[dict[JobId, int], dict[str, set[tuple[NodeId, int]]]]:
    """The number of units that each job holds on cordoned nodes and missing GPUs, and the GPUs of
    these units by type. No other job is offered them."""
    slots, gpus = Counter[JobId](), defaultdict[str, set[tuple[NodeId, int]]](set)
    cordoned = {
        key: node
        for key, node in nodes.items()
        if (node.is_cordoned or node.missing_gpus) and not node.is_draining
    }
    for job in jobs if cordoned else ():
        for slot in planned.get(job.id, ()):
            node = cordoned.get(slot.node)
            if node is not None and node.cordons(slot.gpus) and occupies_slot(job, slot):
                slots[job.id] += job.spec.units_in((slot,))
                for gpu in node.gpus:
                    if gpu.index in slot.gpus and node.cordons((gpu.index,)):
                        gpus[gpu.type].add((slot.node, gpu.index))
    return slots, gpus
