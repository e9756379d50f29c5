"""How the workers of one job are spread over nodes: fewest nodes, then the tightest fit."""

from __future__ import annotations

from collections.abc import Collection

from rota.core.capacity import Capacity
from rota.core.demand import Demand
from rota.core.model import NodeId
from rota.core.room import Room

Chunks = list[tuple[NodeId, int]]
"""How many workers go to which node, the largest chunk first."""


def spread(
    capacity: Capacity, demand: Demand, workers: int, crowded: Collection[NodeId] = ()
) -> Chunks | None:
    """Where so many workers fit, or None. A job that needs several nodes takes the emptiest
    first and then, for the rest of it, the tightest; `crowded` nodes (which hold another such
    job) come last."""
    chunks: Chunks = []
    emptiest: list[tuple[int, Room]] | None = None
    while workers:
        tightest = _tightest(capacity, demand, workers, avoid=_used(chunks, crowded))
        if tightest is None and crowded:
            tightest = _tightest(capacity, demand, workers, avoid=_used(chunks))
        if tightest is not None:
            chunks.append((tightest.node.id, workers))
            return chunks
        if emptiest is None:
            emptiest = _by_room(capacity, demand, crowded)
        if not emptiest:
            return None
        fits, room = emptiest.pop()
        chunks.append((room.node.id, fits))
        workers -= fits
    return chunks


def n_fitting(capacity: Capacity, demand: Demand, at_most: int) -> int:
    """How many workers fit on all nodes together."""
    total = 0
    for room in capacity.by_size(demand):
        total += room.fits(demand)
        if total >= at_most:
            return at_most
    return total


def _used(chunks: Chunks, crowded: Collection[NodeId] = ()) -> set[NodeId]:
    return {node_id for node_id, _ in chunks}.union(crowded)


def _tightest(
    capacity: Capacity, demand: Demand, workers: int, *, avoid: Collection[NodeId]
) -> Room | None:
    """The room with the least to spare among those that hold all the workers."""
    if demand.share:
        return _fullest(capacity, demand, workers, avoid=avoid)
    for room in capacity.by_fit(demand, workers):
        if room.node.id not in avoid and room.fits(demand) >= workers:
            return room
    return None


def _fullest(
    capacity: Capacity, demand: Demand, workers: int, *, avoid: Collection[NodeId]
) -> Room | None:
    """For shares: the room with the fullest card that still fits; else one that opens a card."""
    best: tuple[int, Room] | None = None
    unopened: Room | None = None
    for room in capacity.by_fit(demand):
        if room.node.id in avoid or room.fits(demand) < workers:
            continue
        card = room.fullest_card(demand)
        if card and (best is None or card[0] < best[0]):
            best = (card[0], room)
        elif card is None and unopened is None:
            unopened = room
    return best[1] if best else unopened


def _by_room(
    capacity: Capacity, demand: Demand, crowded: Collection[NodeId]
) -> list[tuple[int, Room]]:
    """All rooms that fit a worker, so sorted that the best for a large chunk is last."""
    rooms = [(fits, room) for room in capacity.by_fit(demand) if (fits := room.fits(demand))]
    rooms.sort(key=lambda pair: (pair[0], pair[1].node.id not in crowded, -pair[1].position))
    return rooms
