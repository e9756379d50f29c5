"""Which of several equal nodes a packed set of workers goes to, so that the fewest move.

Packing says "these workers together on a node of this kind"; nodes that are in the same state
apart from what was packed on them are interchangeable, and the assignment problem finds the
exchange under which most workers keep their slots.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from rota.core.capacity import Capacity
from rota.core.model import Allocation, JobId, NodeId
from rota.core.packing import Chunks
from rota.core.seating import Party, can_keep, seat_all

Overlap = Mapping[tuple[NodeId, NodeId], int]
"""(packed on, was on) -> what it is worth if the second stands for the first."""

WORTH_OF_A_WORKER = 1_000_000
"""Against 1 for a worker 0: fewest moves first, and among equals it is worker 0 that stays."""


@dataclass(frozen=True, slots=True)
class Seating:
    """A party, and the seats that packing found for it."""

    party: Party
    chunks: Chunks
    allocation: Allocation
    may_rebind: bool
    """Whether equal nodes would do as well: not for a job that stays where it is or that some
    nodes would not have, and not for sharers, who may not fit another node's cards."""


def bind(
    capacity: Capacity, seatings: Sequence[Seating], *, crowded: Collection[NodeId] = ()
) -> dict[JobId, Allocation]:
    """The seatings' allocations, with nodes exchanged where that saves moves. `crowded` nodes
    hold a job of several nodes that is not among the seatings."""
    bound = {seating.party.job_id: seating.allocation for seating in seatings}
    loose = [seating for seating in seatings if seating.may_rebind]
    if not any(seating.party.before for seating in loose):
        return bound
    for seating in loose:
        capacity.give(seating.allocation, seating.party.demand)
    exchange = _exchange(capacity, _overlap(capacity, loose), crowded=crowded)
    parties = [
        (seating.party, [(exchange.get(node, node), count) for node, count in seating.chunks])
        for seating in loose
    ]
    for (party, _), allocation in zip(parties, seat_all(capacity, parties), strict=True):
        bound[party.job_id] = allocation
    return bound


def _overlap(capacity: Capacity, loose: Sequence[Seating]) -> Overlap:
    overlap: dict[tuple[NodeId, NodeId], int] = defaultdict(int)
    for seating in loose:
        party, chunks = seating.party, seating.chunks
        kept = [
            can_keep(capacity, slot, demand=party.demand) and not capacity[slot.node].node.is_closed
            for slot in party.before[: sum(count for _, count in chunks)]
        ]
        stayers = Counter(s.node for s, keeps in zip(party.before, kept, strict=False) if keeps)
        for packed_on, now in chunks:
            for was_on, before in stayers.items():
                overlap[packed_on, was_on] += min(before, now) * WORTH_OF_A_WORKER
            if kept and kept[0]:
                overlap[packed_on, party.before[0].node] += 1
    return overlap


def _exchange(
    capacity: Capacity, overlap: Overlap, *, crowded: Collection[NodeId]
) -> dict[NodeId, NodeId]:
    """For each node that packing used, the equal node to use instead."""
    alike: dict[object, list[NodeId]] = defaultdict(list)
    for node_id in sorted({node_id for pair in overlap for node_id in pair}):
        alike[capacity[node_id].shape, node_id in crowded].append(node_id)
    place = {node: (kind, i) for kind, group in alike.items() for i, node in enumerate(group)}
    scores = {kind: np.zeros((len(group), len(group))) for kind, group in alike.items()}
    for (packed_on, was_on), worth in overlap.items():
        (kind, row), (other_kind, column) = place[packed_on], place[was_on]
        if kind == other_kind:
            scores[kind][row, column] = worth
    exchange: dict[NodeId, NodeId] = {}
    for kind, group in alike.items():
        if len(group) == 1:
            exchange[group[0]] = group[0]
            continue
        # By its long name, SciPy loads this part when it is first used: on one box, never.
        rows, columns = scipy.optimize.linear_sum_assignment(scores[kind], maximize=True)
        exchange.update({group[row]: group[to] for row, to in zip(rows, columns, strict=True)})
    return exchange
