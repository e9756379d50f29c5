"""Which worker gets which slot once it is known how many go to each node.

Workers keep their numbers: a worker whose slot is still free and whose node still has a place for
it keeps both; one whose node has a place stays on the node; the others fill up in order, so that
the last workers, which a shrink takes first, are on the smallest chunk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.capacity import Capacity
from rota.core.demand import Demand
from rota.core.model import Allocation, JobId, NodeId, Slot
from rota.core.packing import Chunks


@dataclass(frozen=True, slots=True)
class Party:
    """The workers of one job that want seats, and where they sat before."""

    job_id: JobId
    demand: Demand
    before: Allocation = ()


def seat(capacity: Capacity, party: Party, *, chunks: Chunks) -> Allocation:
    """Take slots for all workers from `capacity`: so many on each node as `chunks` says."""
    return seat_all(capacity, [(party, chunks)])[0]


def seat_all(capacity: Capacity, parties: Sequence[tuple[Party, Chunks]]) -> list[Allocation]:
    """The same for several parties at once: nobody takes a seat that another one could keep."""
    tables = [_Table(capacity, party, chunks) for party, chunks in parties]
    for table in tables:
        table.seat_those_who_stay()
    return [table.seat_the_others() for table in tables]


def can_keep(capacity: Capacity, slot: Slot, *, demand: Demand) -> bool:
    """Whether a worker that held this slot could hold it again."""
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


class _Table:
    """The seats of one party while they are being given out."""

    def __init__(self, capacity: Capacity, party: Party, chunks: Chunks) -> None:
        self._capacity = capacity
        self._demand = party.demand
        self._places = dict(chunks)
        self._workers = sum(self._places.values())
        self._before = party.before[: self._workers]
        self._slots: dict[int, Slot] = {}

    def seat_those_who_stay(self) -> None:
        for worker, old in enumerate(self._before):
            if self._places.get(old.node) and can_keep(self._capacity, old, demand=self._demand):
                self._sit(worker, old)

    def seat_the_others(self) -> Allocation:
        for worker, old in enumerate(self._before):
            if worker not in self._slots and self._places.get(old.node):
                self._sit(worker, self._next_on(old.node))
        standing = (worker for worker in range(self._workers) if worker not in self._slots)
        for node_id, n_places in list(self._places.items()):
            for _ in range(n_places):
                self._sit(next(standing), self._next_on(node_id))
        return tuple(self._slots[worker] for worker in range(self._workers))

    def _next_on(self, node_id: NodeId) -> Slot:
        return self._capacity.choose(node_id, self._demand)

    def _sit(self, worker: int, slot: Slot) -> None:
        self._capacity.take(slot, self._demand)
        self._places[slot.node] -= 1
        self._slots[worker] = slot
