"""Allocations: on which node and which GPUs each worker of a job runs."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.model.node import NodeId

TOLERANCE = 1e-9
"""GPU shares and CPUs are fractions: ten tenths must still make one."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one worker: a node and the indices of its GPUs on that node. A worker with a GPU
    share holds `share_bytes` of its only GPU, which is `fraction` of that GPU's memory."""

    node: NodeId
    gpus: tuple[int, ...] = ()
    share_bytes: int = 0
    fraction: float = 1.0


Allocation = tuple[Slot, ...]
"""The slots of a job's workers, in the order of their ranks."""


def n_gpus(allocation: Allocation) -> float:
    """The number of GPUs in an allocation. A GPU share counts as its fraction of a GPU."""
    return sum(len(slot.gpus) * slot.fraction for slot in allocation)


def added_slots(before: Allocation, after: Allocation) -> Allocation:
    """The slots in `after` of workers that are new or have moved. With the arguments swapped: the
    slots of workers that leave or move away."""
    return tuple(slot for i, slot in enumerate(after) if i >= len(before) or before[i] != slot)


def n_nodes(allocation: Allocation) -> int:
    return len({slot.node for slot in allocation})
