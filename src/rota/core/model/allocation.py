"""Allocations: on which node and which GPUs each worker of a job runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rota.core.model.node import NodeId

TOLERANCE = 1e-9
"""GPU shares and CPUs are fractions: ten tenths must still make one."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one worker: a node and the indices of its GPUs on that node. A worker with GPU
    shares holds `share_bytes` of each of its GPUs, which is `fraction` of a GPU's memory."""

    node: NodeId
    gpus: tuple[int, ...] = ()
    share_bytes: int = 0
    fraction: float = 1.0
    is_follower: bool = False
    """While a job is placed: whether this unit is part of the worker of an earlier slot on the same
    node, so that it needs no CPUs and memory of its own."""


Allocation = tuple[Slot, ...]
"""The slots of a job's workers, in the order of their ranks."""


def n_gpus(allocation: Allocation) -> float:
    """The number of GPUs in an allocation. A GPU share counts as its fraction of a GPU."""
    return sum(len(slot.gpus) * slot.fraction for slot in allocation)


def split_workers(allocation: Allocation) -> Allocation:
    """One slot for each GPU, in place of one for each worker: worker by worker, in the order of
    ranks."""
    return tuple(
        replace(slot, gpus=(index,), is_follower=i > 0)
        for slot in allocation
        for i, index in enumerate(slot.gpus)
    )


def merge_workers(units: Allocation) -> Allocation:
    """One slot for each node, with all its GPUs, in the order in which the nodes appear."""
    by_node: dict[NodeId, list[Slot]] = {}
    for unit in units:
        by_node.setdefault(unit.node, []).append(unit)
    return tuple(
        Slot(
            node,
            tuple(sorted(index for slot in slots for index in slot.gpus)),
            # Only the margin above the observed memory can differ between GPUs.
            min(slot.share_bytes for slot in slots),
            sum(slot.fraction for slot in slots) / len(slots),
        )
        for node, slots in by_node.items()
    )


def added_slots(before: Allocation, after: Allocation) -> Allocation:
    """The slots in `after` of workers that are new or have moved. With the arguments swapped: the
    slots of workers that leave or move away."""
    return tuple(slot for i, slot in enumerate(after) if i >= len(before) or before[i] != slot)


def n_nodes(allocation: Allocation) -> int:
    return len({slot.node for slot in allocation})
