"""Finds slots for the units of one wish: first the nodes, then the GPUs on them.

Units go to the fewest nodes, with the tightest fit. Units keep their numbers: a unit keeps its slot
if the slot is free and its node still has a place for it; else it stays on its node if the node has
a place. The other units fill the remaining places in order, so that the last units, which a shrink
removes first, are on the node with the fewest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from heapq import nlargest

from rota.core.model.allocation import Allocation, Slot
from rota.core.model.node import NodeId
from rota.core.placement.capacity import ClusterCapacity
from rota.core.placement.wish import Demand

Chunks = list[tuple[NodeId, int]]
"""How many units go to which node, the largest number first."""


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
    for room in capacity.by_fit(demand, units):
        if room.fits(demand) >= units and room.node.id not in avoid:
            return [(room.node.id, units)]
    if demand.max_nodes == 1:
        return None
    roomy = sorted(
        (-fits, room.order, room.node.id)
        for room in capacity.with_free(demand.gpu_type, demand.gpus)
        if (fits := room.fits(demand)) and room.node.id not in avoid
    )
    chunks = _fewest([(-fits, node_id) for fits, _, node_id in roomy], units)
    if chunks is None or 0 < demand.max_nodes < len(chunks):
        return None
    if not any(node_id in crowded for node_id, _ in chunks):
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
    """How many units fit on all nodes together, or on the most nodes that they may use."""
    fits = (room.fits(demand) for room in capacity.with_free(demand.gpu_type, demand.gpus))
    return sum(nlargest(demand.max_nodes, fits)) if demand.max_nodes else sum(fits)


def assign_slots(
    capacity: ClusterCapacity, demand: Demand, *, chunks: Chunks, before: Allocation = ()
) -> Allocation:
    """Take slots for all units from `capacity`: on each node the number that `chunks` gives."""
    places = dict(chunks)
    units = range(sum(places.values()))
    found: dict[int, Slot] = {}

    def choose(node_id: NodeId) -> Slot:
        own = (slot.gpus for slot in found.values() if slot.node == node_id)
        taken = {index for gpus in own for index in gpus} if demand.merges_units else ()
        return capacity.choose(node_id, demand, own=taken)

    def assign(unit: int, slot: Slot) -> None:
        if demand.merges_units:
            is_follower = any(other.node == slot.node for other in found.values())
            slot = replace(slot, is_follower=is_follower)
        capacity.take((slot,), demand)
        places[slot.node] -= 1
        found[unit] = slot

    for unit, old in zip(units, before, strict=False):
        if places.get(old.node) and _can_keep(capacity, old, demand=demand):
            assign(unit, old)
    for unit, old in zip(units, before, strict=False):
        if unit not in found and places.get(old.node):
            assign(unit, choose(old.node))
    nodes = (node_id for node_id, _ in chunks for _ in range(places[node_id]))
    for unit, node_id in zip([unit for unit in units if unit not in found], nodes, strict=True):
        assign(unit, choose(node_id))
    return tuple(found[unit] for unit in units)


def _can_keep(capacity: ClusterCapacity, slot: Slot, *, demand: Demand) -> bool:
    """Whether a unit that held this slot can hold it again."""
    if not capacity.has_free(slot, demand) or len(slot.gpus) != (
        1 if demand.share else demand.gpus
    ):
        return False
    room = capacity[slot.node]
    need = demand.share_bytes(room.gpus[slot.gpus[0]].memory_bytes) if demand.share else 0
    return slot.share_bytes == need and not room.node.is_draining
