"""Chooses the nodes for the workers of one job: the fewest nodes, then the tightest fit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from rota.core.model.node import NodeId
from rota.core.placement.cluster_capacity import ClusterCapacity
from rota.core.placement.node_capacity import NodeCapacity
from rota.core.placement.worker_demand import Demand

Chunks = list[tuple[NodeId, int]]
"""How many workers go to which node, the largest number first."""


def choose_nodes(
    capacity: ClusterCapacity,
    demand: Demand,
    *,
    workers: int,
    crowded: Collection[NodeId] = (),
    avoid: Collection[NodeId] = (),
) -> Chunks | None:
    """Nodes for `workers` workers, or None if they do not fit.

    If one node fits all workers, the tightest such node is chosen; else the fewest nodes. `crowded`
    nodes, which hold another job that spans nodes, are used only if the job would otherwise need
    more nodes or not fit. Nodes in `avoid` are never used.
    """
    tightest = _tightest(capacity, demand, workers=workers, avoid=avoid)
    if tightest is not None:
        return [(tightest.node.id, workers)]
    roomy = _roomiest_first(capacity, demand, avoid=avoid)
    chunks = _fewest(roomy, workers)
    if chunks is None or not any(node_id in crowded for node_id, _ in chunks):
        return chunks
    alone = _fewest((pair for pair in roomy if pair[1] not in crowded), workers)
    return alone if alone and len(alone) <= len(chunks) else chunks


def n_fitting(capacity: ClusterCapacity, demand: Demand) -> int:
    """How many workers fit on all nodes together."""
    return sum(room.fits(demand) for room in capacity.by_size(demand))


def _tightest(
    capacity: ClusterCapacity, demand: Demand, *, workers: int, avoid: Collection[NodeId]
) -> NodeCapacity | None:
    """The tightest node that fits all workers; for shares, the node with the fullest GPU."""
    rooms = capacity.by_card(demand) if demand.share else capacity.by_fit(demand, workers)
    for room in rooms:
        if room.fits(demand) >= workers and room.node.id not in avoid:
            return room
    return None


def _roomiest_first(
    capacity: ClusterCapacity, demand: Demand, *, avoid: Collection[NodeId]
) -> list[tuple[int, NodeId]]:
    """How many workers fit on each node, the most first, then in node order."""
    rooms = [
        (-fits, room.position, room.node.id)
        for room in capacity.by_size(demand)
        if (fits := room.fits(demand)) and room.node.id not in avoid
    ]
    return [(-fits, node_id) for fits, _, node_id in sorted(rooms)]


def _fewest(roomiest_first: Iterable[tuple[int, NodeId]], workers: int) -> Chunks | None:
    """Fill nodes completely, the roomiest first; the rest goes to the node with the tightest
    fit."""
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
