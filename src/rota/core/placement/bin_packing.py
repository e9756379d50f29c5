"""How the workers of one job are spread over nodes: fewest nodes, then the tightest fit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from rota.core.capacity import Capacity
from rota.core.demand import Demand
from rota.core.model import NodeId
from rota.core.room import Room

Chunks = list[tuple[NodeId, int]]
"""How many workers go to which node, the largest chunk first."""


def spread(
    capacity: Capacity,
    demand: Demand,
    *,
    workers: int,
    crowded: Collection[NodeId] = (),
    avoid: Collection[NodeId] = (),
) -> Chunks | None:
    """Where so many workers fit, or None. One node if one holds them all, and then the tightest.
    Else the fewest nodes; `crowded` ones (which hold another job of several nodes) only if it
    would take more nodes, or not work, without them. No worker goes to a node to `avoid`."""
    room = _tightest(capacity, demand, workers=workers, avoid=avoid)
    if room is not None:
        return [(room.node.id, workers)]
    roomy = _roomiest_first(capacity, demand, avoid=avoid)
    chunks = _fewest(roomy, workers)
    if chunks is None or not any(node_id in crowded for node_id, _ in chunks):
        return chunks
    alone = _fewest((pair for pair in roomy if pair[1] not in crowded), workers)
    return alone if alone and len(alone) <= len(chunks) else chunks


def n_fitting(capacity: Capacity, demand: Demand) -> int:
    """How many workers fit on all nodes together."""
    return sum(room.fits(demand) for room in capacity.by_size(demand))


def _tightest(
    capacity: Capacity, demand: Demand, *, workers: int, avoid: Collection[NodeId]
) -> Room | None:
    """The room with the least to spare among those that hold all the workers; for shares, the
    one with the fullest card."""
    rooms = capacity.by_card(demand) if demand.share else capacity.by_fit(demand, workers)
    for room in rooms:
        if room.fits(demand) >= workers and room.node.id not in avoid:
            return room
    return None


def _roomiest_first(
    capacity: Capacity, demand: Demand, *, avoid: Collection[NodeId]
) -> list[tuple[int, NodeId]]:
    """How many workers fit on which node, the most first, then in the nodes' order."""
    rooms = [
        (-fits, room.position, room.node.id)
        for room in capacity.by_size(demand)
        if (fits := room.fits(demand)) and room.node.id not in avoid
    ]
    return [(-fits, node_id) for fits, _, node_id in sorted(rooms)]


def _fewest(roomiest_first: Iterable[tuple[int, NodeId]], workers: int) -> Chunks | None:
    """Whole nodes from the roomiest on; what is left over goes where it fits most tightly."""
    chunks: Chunks = []
    rooms = iter(roomiest_first)
    for fits, node_id in rooms:
        if fits >= workers:
            last = _tightest_of(rooms, workers, found=(fits, node_id))
            return [*chunks, (last, workers)]
        chunks.append((node_id, fits))
        workers -= fits
    return None


def _tightest_of(
    roomiest_first: Iterator[tuple[int, NodeId]], workers: int, *, found: tuple[int, NodeId]
) -> NodeId:
    best_fits, best = found
    for fits, node_id in roomiest_first:
        if fits < workers:
            break
        if fits < best_fits:
            best_fits, best = fits, node_id
    return best
