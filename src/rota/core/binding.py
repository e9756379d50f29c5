"""Which of several equal nodes a packed set of workers goes to, so that the fewest move.

Packing says "these workers together on a node of this kind"; nodes that were in the same state
before packing are interchangeable, and the assignment problem finds the exchange under which most
workers are where they were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from rota.core.capacity import Capacity
from rota.core.model import Allocation, JobId, NodeId
from rota.core.packing import Chunks
from rota.core.seating import Party, chunks_of, seat


@dataclass(frozen=True, slots=True)
class Seating:
    """A party and the seats that packing found for it."""

    party: Party
    chunks: Chunks
    allocation: Allocation
    may_rebind: bool
    """Whether equal nodes would do as well: not for a job that stays where it is."""


def bind(capacity: Capacity, seatings: Sequence[Seating]) -> dict[JobId, Allocation]:
    """The seatings' allocations, with nodes exchanged where that saves moves."""
    bound = {seating.party.job_id: seating.allocation for seating in seatings}
    loose = [seating for seating in seatings if seating.may_rebind]
    if not any(seating.party.before for seating in loose):
        return bound
    for seating in loose:
        capacity.give(seating.allocation, seating.party.demand)
    exchange = _exchange(capacity, loose)
    for seating in loose:
        chunks = [(exchange.get(node_id, node_id), count) for node_id, count in seating.chunks]
        bound[seating.party.job_id] = seat(capacity, seating.party, chunks)
    return bound


def _exchange(capacity: Capacity, loose: Sequence[Seating]) -> dict[NodeId, NodeId]:
    """For each node that packing used, the equal node to use instead."""
    overlap = _overlap(loose)
    nodes = {node_id for seating in loose for node_id, _ in seating.chunks}
    nodes |= {slot.node for seating in loose for slot in seating.party.before}
    alike: dict[object, list[NodeId]] = defaultdict(list)
    for node_id in sorted(nodes):
        if capacity.has_node(node_id) and not capacity[node_id].node.is_draining:
            alike[capacity[node_id].shape].append(node_id)
    exchange: dict[NodeId, NodeId] = {}
    for group in alike.values():
        scores = np.array([[overlap.get((a, b), 0) for b in group] for a in group])
        rows, columns = linear_sum_assignment(scores, maximize=True)
        exchange.update(
            {group[row]: group[column] for row, column in zip(rows, columns, strict=True)}
        )
    return exchange


def _overlap(loose: Sequence[Seating]) -> dict[tuple[NodeId, NodeId], int]:
    """(packed on, was on) -> workers that need not move if the second stands for the first."""
    overlap: dict[tuple[NodeId, NodeId], int] = defaultdict(int)
    for seating in loose:
        for was_on, before in chunks_of(seating.party.before):
            for packed_on, now in seating.chunks:
                overlap[packed_on, was_on] += min(before, now)
    return overlap
