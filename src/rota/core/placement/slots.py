"""Finds slots for the units of one wish: first the nodes, then the GPUs on them.

Units go to the fewest nodes, with the tightest fit. Units keep their numbers: a unit keeps its slot
if the slot is free and its node still has a place for it; else it stays on its node if the node has
a place. The other units fill the remaining places in order, so that the last units, which a shrink
removes first, are on the node with the fewest.

`match_nodes` then exchanges equal nodes, so that the fewest units move.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rota.core.model.allocation import Allocation, Slot
from rota.core.model.node import NodeId
from rota.core.placement.capacity import ClusterCapacity
from rota.core.placement.wish import Demand, Wish

Chunks = list[tuple[NodeId, int]]
"""How many units go to which node, the largest number first."""
WORTH_OF_A_UNIT = 1_000_000
"""Each kept unit counts this much, and unit 0 counts 1 more: first the fewest moves, then unit 0
stays."""


def choose_nodes(
    capacity: ClusterCapacity,
    demand: Demand,
    *,
    units: int,
    crowded: Collection[NodeId] = (),
    avoid: Collection[NodeId] = (),
) -> Chunks | None:
    """Nodes for `units` units, or None if they do not fit.

    If one node fits all units, the tightest such node is chosen; for shares, the node with the
    fullest GPU. Else the fewest nodes are chosen. `crowded` nodes, which hold another job that
    spans nodes, are used only if the job would otherwise need more nodes or not fit. Nodes in
    `avoid` are never used.
    """
    rooms = capacity.by_card(demand) if demand.share else capacity.by_fit(demand, units)
    for room in rooms:
        if room.fits(demand) >= units and room.node.id not in avoid:
            return [(room.node.id, units)]
    roomy = sorted(
        (-fits, room.position, room.node.id)
        for room in capacity.by_size(demand)
        if (fits := room.fits(demand)) and room.node.id not in avoid
    )
    chunks = _fewest([(-fits, node_id) for fits, _, node_id in roomy], units)
    if chunks is None or not any(node_id in crowded for node_id, _ in chunks):
        return chunks
    alone = _fewest([(-f, node_id) for f, _, node_id in roomy if node_id not in crowded], units)
    return alone if alone and len(alone) <= len(chunks) else chunks


def _fewest(roomiest_first: Sequence[tuple[int, NodeId]], units: int) -> Chunks | None:
    """Fill nodes completely, the roomiest first; the rest goes to the node with the tightest
    fit."""
    chunks: Chunks = []
    for i, (fits, node_id) in enumerate(roomiest_first):
        if fits >= units:
            enough = (pair for pair in roomiest_first[i:] if pair[0] >= units)
            tightest = min(enough, key=lambda pair: pair[0])
            return [*chunks, (tightest[1], units)]
        chunks.append((node_id, fits))
        units -= fits
    return None


def n_fitting(capacity: ClusterCapacity, demand: Demand) -> int:
    """How many units fit on all nodes together."""
    return sum(room.fits(demand) for room in capacity.by_size(demand))


@dataclass(frozen=True, slots=True)
class PackedWish:
    """A wish with the slots that packing found for it."""

    wish: Wish
    chunks: Chunks
    allocation: Allocation
    may_rebind: bool
    """Whether equal nodes may be used instead. False for a job that stays on its nodes, for a job
    that some nodes rejected, and for shares, which may not fit another node's GPUs."""


def assign_slots(
    capacity: ClusterCapacity, demand: Demand, *, chunks: Chunks, before: Allocation = ()
) -> Allocation:
    """Take slots for all units from `capacity`: on each node the number that `chunks` gives."""
    assigner = _SlotAssigner(capacity, demand, chunks, before)
    assigner.assign_kept_slots()
    return assigner.assign_remaining_slots()


class _SlotAssigner:
    """The slots of one job during the assignment."""

    def __init__(
        self, capacity: ClusterCapacity, demand: Demand, chunks: Chunks, before: Allocation
    ) -> None:
        self._capacity = capacity
        self._demand = demand
        self._places = dict(chunks)
        self._units = sum(self._places.values())
        self._before = before[: self._units]
        self._slots: dict[int, Slot] = {}

    def assign_kept_slots(self) -> None:
        for unit, old in enumerate(self._before):
            if self._places.get(old.node) and _can_keep(self._capacity, old, demand=self._demand):
                self._assign(unit, old)

    def assign_remaining_slots(self) -> Allocation:
        for unit, old in enumerate(self._before):
            if unit not in self._slots and self._places.get(old.node):
                self._assign(unit, self._capacity.choose(old.node, self._demand))
        unassigned = (unit for unit in range(self._units) if unit not in self._slots)
        for node_id, n_places in list(self._places.items()):
            for _ in range(n_places):
                self._assign(next(unassigned), self._capacity.choose(node_id, self._demand))
        return tuple(self._slots[unit] for unit in range(self._units))

    def _assign(self, unit: int, slot: Slot) -> None:
        self._capacity.take(slot, self._demand)
        self._places[slot.node] -= 1
        self._slots[unit] = slot


def _can_keep(capacity: ClusterCapacity, slot: Slot, *, demand: Demand) -> bool:
    """Whether a unit that held this slot can hold it again."""
    if not capacity.has_node(slot.node):
        return False
    room = capacity[slot.node]
    if room.node.is_draining or len(slot.gpus) != (1 if demand.share else demand.gpus):
        return False
    if any(room.type_of(index) != demand.gpu_type for index in slot.gpus):
        return False
    need = demand.share_bytes(room.gpus[slot.gpus[0]].memory_bytes) if demand.share else 0
    return slot.share_bytes == need and room.has_free(slot)


# -- exchange of equal nodes ----------------------------------------------------------------------


def match_nodes(
    capacity: ClusterCapacity, packed: Iterable[PackedWish], *, crowded: Collection[NodeId] = ()
) -> list[Allocation]:
    """New allocations of the packed wishes, with nodes exchanged where that saves moves.

    Packing decides which units share a node of a certain kind. Nodes that are in the same state,
    apart from what was just packed on them, are interchangeable. The assignment problem finds the
    exchange under which most units keep their slots. `crowded` nodes hold a job that spans nodes
    and is not among the wishes.
    """
    packed = list(packed)
    for each in packed:
        capacity.give(each.allocation, each.wish.demand)
    exchange = _exchange(capacity, _overlap(capacity, packed), crowded=crowded)
    assigners = [
        _SlotAssigner(
            capacity,
            each.wish.demand,
            [(exchange.get(node, node), count) for node, count in each.chunks],
            each.wish.held,
        )
        for each in packed
    ]
    # No job takes a slot that another job could keep.
    for assigner in assigners:
        assigner.assign_kept_slots()
    return [assigner.assign_remaining_slots() for assigner in assigners]


def _overlap(
    capacity: ClusterCapacity, packed: Iterable[PackedWish]
) -> Mapping[tuple[NodeId, NodeId], int]:
    """(packed node, earlier node) -> the value of using the earlier node instead."""
    overlap: dict[tuple[NodeId, NodeId], int] = defaultdict(int)
    for each in packed:
        held, demand = each.wish.held[: len(each.allocation)], each.wish.demand
        kept = [
            slot
            for slot in held
            if _can_keep(capacity, slot, demand=demand) and not capacity[slot.node].node.is_closed
        ]
        stayers = Counter(slot.node for slot in kept)
        for packed_on, now in each.chunks:
            for was_on, before in stayers.items():
                overlap[packed_on, was_on] += min(before, now) * WORTH_OF_A_UNIT
            if kept and kept[0] is held[0]:
                overlap[packed_on, held[0].node] += 1
    return overlap


def _exchange(
    capacity: ClusterCapacity,
    overlap: Mapping[tuple[NodeId, NodeId], int],
    *,
    crowded: Collection[NodeId],
) -> dict[NodeId, NodeId]:
    """For each node that packing used, the equal node to use instead."""
    alike: dict[object, list[NodeId]] = defaultdict(list)
    for node_id in sorted({node_id for pair in overlap for node_id in pair}):
        alike[capacity[node_id].shape, node_id in crowded].append(node_id)
    exchange: dict[NodeId, NodeId] = {}
    for group in alike.values():
        if len(group) > 1:
            exchange |= _exchange_equals(group, overlap)
    return exchange


def _exchange_equals(
    group: list[NodeId], overlap: Mapping[tuple[NodeId, NodeId], int]
) -> dict[NodeId, NodeId]:
    # Imported here, because a single node never needs them, and a start would take 0.5 s longer.
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    index = {node_id: i for i, node_id in enumerate(group)}
    scores = np.zeros((len(group), len(group)))
    for (packed_on, was_on), worth in overlap.items():
        if packed_on in index and was_on in index:
            scores[index[packed_on], index[was_on]] = worth
    rows, columns = linear_sum_assignment(scores, maximize=True)
    return {group[row]: group[to] for row, to in zip(rows, columns, strict=True)}
