"""Which worker gets which slot once it is known how many go to each node.

Workers keep their numbers: a worker whose node still has a place for it stays there, on the same
GPUs where they are free; the others fill up in order, so that the last workers, which a shrink
takes first, are on the smallest chunk.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rota.core.capacity import Capacity
from rota.core.demand import Demand
from rota.core.model import Allocation, JobId, Slot
from rota.core.packing import Chunks


@dataclass(frozen=True, slots=True)
class Party:
    """The workers of one job that want seats, and where they sat before."""

    job_id: JobId
    demand: Demand
    before: Allocation


def seat(capacity: Capacity, party: Party, chunks: Chunks) -> Allocation:
    """Take slots for all workers from `capacity`: so many on each node as `chunks` says."""
    before, demand = party.before, party.demand
    places = dict(chunks)
    workers = sum(places.values())
    slots: dict[int, Slot] = {}
    for worker, old in enumerate(before[:workers]):
        if places.get(old.node):
            places[old.node] -= 1
            slots[worker] = old
    kept = {worker for worker, old in slots.items() if _take_if_free(capacity, old, demand)}
    for worker in sorted(slots.keys() - kept):
        slots[worker] = _take_next(capacity, slots[worker], demand)
    empty = (worker for worker in range(workers) if worker not in slots)
    for node_id, _ in chunks:
        for _ in range(places[node_id]):
            slots[next(empty)] = _take_next(capacity, Slot(node_id), demand)
    return tuple(slots[worker] for worker in range(workers))


def chunks_of(allocation: Allocation) -> Chunks:
    return Counter(slot.node for slot in allocation).most_common()


def _take_if_free(capacity: Capacity, slot: Slot, demand: Demand) -> bool:
    if slot.share_bytes and capacity[slot.node].choose(demand).share_bytes != slot.share_bytes:
        return False
    return capacity.try_take_all((slot,), demand)


def _take_next(capacity: Capacity, where: Slot, demand: Demand) -> Slot:
    slot = capacity[where.node].choose(demand)
    capacity.take(slot, demand)
    return slot
