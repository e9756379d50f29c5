"""Assigns slots to workers once the number of workers on each node is known.

Workers keep their numbers. A worker keeps its slot if the slot is free and its node still has a
place for it; else it stays on its node if the node has a place. The other workers fill the
remaining places in order, so that the last workers, which a shrink removes first, are on the node
with the fewest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.model.allocation import Allocation, Slot
from rota.core.model.job import JobId
from rota.core.model.node import NodeId
from rota.core.placement.bin_packing import Chunks
from rota.core.placement.cluster_capacity import ClusterCapacity
from rota.core.placement.worker_demand import Demand


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """The workers of one job that need slots, and the slots they had before."""

    job_id: JobId
    demand: Demand
    before: Allocation = ()


def assign_slots(
    capacity: ClusterCapacity, slot_request: SlotRequest, *, chunks: Chunks
) -> Allocation:
    """Take slots for all workers from `capacity`: on each node the number that `chunks` gives."""
    return assign_slots_to_all(capacity, [(slot_request, chunks)])[0]


def assign_slots_to_all(
    capacity: ClusterCapacity, slot_requests: Sequence[tuple[SlotRequest, Chunks]]
) -> list[Allocation]:
    """The same for several jobs at once: no job takes a slot that another job could keep."""
    assigners = [
        _SlotAssigner(capacity, slot_request, chunks) for slot_request, chunks in slot_requests
    ]
    for assigner in assigners:
        assigner.assign_kept_slots()
    return [assigner.assign_remaining_slots() for assigner in assigners]


def can_keep(capacity: ClusterCapacity, slot: Slot, *, demand: Demand) -> bool:
    """Whether a worker that held this slot can hold it again."""
    if not capacity.has_node(slot.node):
        return False
    room = capacity[slot.node]
    if room.node.is_draining or len(slot.gpus) != (1 if demand.share else demand.gpus):
        return False
    if any(room.type_of(index) != demand.gpu_type for index in slot.gpus):
        return False
    if demand.share:
        need = demand.share_bytes(room.gpus[slot.gpus[0]].memory_bytes)
        return slot.share_bytes == need and room.has_free(slot)
    return not slot.share_bytes and room.has_free(slot)


def chunks_of(allocation: Allocation) -> Chunks:
    return Counter(slot.node for slot in allocation).most_common()


class _SlotAssigner:
    """The slots of one job during the assignment."""

    def __init__(
        self, capacity: ClusterCapacity, slot_request: SlotRequest, chunks: Chunks
    ) -> None:
        self._capacity = capacity
        self._demand = slot_request.demand
        self._places = dict(chunks)
        self._workers = sum(self._places.values())
        self._before = slot_request.before[: self._workers]
        self._slots: dict[int, Slot] = {}

    def assign_kept_slots(self) -> None:
        for worker, old in enumerate(self._before):
            if self._places.get(old.node) and can_keep(self._capacity, old, demand=self._demand):
                self._assign(worker, old)

    def assign_remaining_slots(self) -> Allocation:
        for worker, old in enumerate(self._before):
            if worker not in self._slots and self._places.get(old.node):
                self._assign(worker, self._next_on(old.node))
        unassigned = (worker for worker in range(self._workers) if worker not in self._slots)
        for node_id, n_places in list(self._places.items()):
            for _ in range(n_places):
                self._assign(next(unassigned), self._next_on(node_id))
        return tuple(self._slots[worker] for worker in range(self._workers))

    def _next_on(self, node_id: NodeId) -> Slot:
        return self._capacity.choose(node_id, self._demand)

    def _assign(self, worker: int, slot: Slot) -> None:
        self._capacity.take(slot, self._demand)
        self._places[slot.node] -= 1
        self._slots[worker] = slot
