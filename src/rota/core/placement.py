"""The third step of a round: GPU counts become concrete GPUs.

Jobs whose size does not change stay where they are. A job that shrinks gives up its last workers;
one that grows stays and takes more, unless moving puts it on fewer nodes. Newcomers go to the
fewest nodes, the tightest fit first. What moves is bound to nodes so that the fewest workers
really do (see `binding`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rota.core.binding import Seating, bind
from rota.core.capacity import Capacity
from rota.core.demand import Demand, demand_of
from rota.core.model import Allocation, Job, JobId, NodeId, n_nodes
from rota.core.packing import Chunks, n_fitting, spread
from rota.core.seating import Party, chunks_of, seat
from rota.core.view import View


@dataclass(frozen=True, slots=True)
class Wish:
    """A job's target: so many workers on GPUs of this type."""

    job: Job
    workers: int
    gpu_type: str

    @property
    def demand(self) -> Demand:
        return demand_of(self.job, self.gpu_type)

    @property
    def bulk(self) -> tuple[int, int, float]:
        """What makes it hard to place: whole GPUs first, then shares by their size."""
        spec = self.job.spec
        if spec.share is None:
            return self.workers * spec.gpus, 0, 0.0
        return 0, spec.share.memory_bytes, spec.share.fraction


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the wishes went. `short` are those that found no place, with what would have fit;
    `left` is what nobody got."""

    allocations: dict[JobId, Allocation]
    short: dict[JobId, int]
    left: Capacity


def place(
    view: View,
    wishes: Sequence[Wish],
    *,
    movable: Collection[JobId] = (),
    in_order: bool = False,
) -> Placed:
    """Give every wish its slots: a higher priority first, then the largest first (or, with
    `in_order`, as the wishes stand). `movable` jobs are packed anew although they could stay."""
    capacity = view.free.copy()
    _release_the_unwanted(capacity, view, wishes)
    settled, movers = _settle_in_place(capacity, view, wishes, movable=movable)
    seatings: list[Seating] = []
    short: dict[JobId, int] = {}
    crowded = _nodes_of_spanning(settled.values())
    if not in_order:
        movers.sort(key=lambda wish: (wish.job.spec.priority, wish.bulk), reverse=True)
    for wish in movers:
        before = view.planned.get(wish.job.id, ())
        seating = _resettle(capacity, wish, before, crowded)
        if seating is None:
            short[wish.job.id] = n_fitting(capacity, wish.demand, wish.workers)
            continue
        seatings.append(seating)
        if n_nodes(seating.allocation) > 1:
            crowded.update(slot.node for slot in seating.allocation)
    settled.update(bind(capacity, seatings))
    allocations = {w.job.id: settled[w.job.id] for w in wishes if w.job.id in settled}
    return Placed(allocations, short, capacity)


def place_next_in_line(placed: Placed, wishes: Iterable[Wish]) -> Placed:
    """Give what is left to those of `wishes` that still find a place, in their order."""
    allocations = dict(placed.allocations)
    for wish in wishes:
        chunks = spread(placed.left, wish.demand, wish.workers)
        if chunks:
            allocations[wish.job.id] = seat(
                placed.left, Party(wish.job.id, wish.demand, ()), chunks
            )
    return Placed(allocations, placed.short, placed.left)


def _release_the_unwanted(capacity: Capacity, view: View, wishes: Sequence[Wish]) -> None:
    wanted = {wish.job.id: wish.gpu_type for wish in wishes}
    unwanted = {job_id for job_id in view.planned if job_id not in wanted}
    if not unwanted:
        return
    for job in view.jobs:
        if job.id in unwanted:
            capacity.give(view.planned[job.id], demand_of(job, view.gpu_types[job.id]))


def _settle_in_place(
    capacity: Capacity, view: View, wishes: Sequence[Wish], *, movable: Collection[JobId]
) -> tuple[dict[JobId, Allocation], list[Wish]]:
    """Those who stay where they are, and the others, whose slots are given back."""
    draining = {node.id for node in view.nodes.values() if node.is_draining}
    settled: dict[JobId, Allocation] = {}
    movers: list[Wish] = []
    for wish in wishes:
        before = view.planned.get(wish.job.id, ())
        if not before:
            movers.append(wish)
            continue
        stays = wish.job.id not in movable and view.gpu_types[wish.job.id] == wish.gpu_type
        if stays and draining:
            stays = all(slot.node not in draining for slot in before)
        kept = _resized_in_place(capacity, wish, before) if stays else None
        if kept is not None:
            settled[wish.job.id] = kept
        else:
            capacity.give(before, demand_of(wish.job, view.gpu_types[wish.job.id]))
            movers.append(wish)
    return settled, movers


def _resized_in_place(capacity: Capacity, wish: Wish, before: Allocation) -> Allocation | None:
    """The job's slots if it need not move for its new size; they are taken or given back."""
    missing = wish.workers - len(before)
    if not missing:
        return before
    if missing > 0:
        node_id = before[0].node
        if n_nodes(before) > 1 or capacity[node_id].fits(wish.demand) < missing:
            return None
        newcomers = Party(wish.job.id, wish.demand, ())
        return before + seat(capacity, newcomers, [(node_id, missing)])
    kept = before[: wish.workers]
    if n_nodes(kept) > 1 and any(capacity.by_fit(wish.demand, wish.workers)):
        return None
    capacity.give(before[wish.workers :], wish.demand)
    return kept


def _nodes_of_spanning(allocations: Iterable[Allocation]) -> set[NodeId]:
    spanning = (allocation for allocation in allocations if len(allocation) > 1)
    return {slot.node for allocation in spanning if n_nodes(allocation) > 1 for slot in allocation}


def _resettle(
    capacity: Capacity, wish: Wish, before: Allocation, crowded: Collection[NodeId]
) -> Seating | None:
    """Fewest nodes; among equals where the job already is."""
    demand = wish.demand
    fresh = spread(capacity, demand, wish.workers, crowded)
    grown = _grown_in_place(capacity, wish, before) if before else None
    is_grown = grown is not None and (fresh is None or len(grown) <= len(fresh))
    chunks = grown if is_grown else fresh
    if chunks is None:
        return None
    party = Party(wish.job.id, demand, before)
    return Seating(party, chunks, seat(capacity, party, chunks), may_rebind=not is_grown)


def _grown_in_place(capacity: Capacity, wish: Wish, before: Allocation) -> Chunks | None:
    """The old nodes first, as many as fit there, then the rest elsewhere."""
    demand, missing = wish.demand, wish.workers
    chunks: Chunks = []
    for node_id, _ in chunks_of(before):
        if not capacity.has_node(node_id) or capacity[node_id].node.is_draining:
            return None
        count = min(missing, capacity[node_id].fits(demand))
        if count:
            chunks.append((node_id, count))
            missing -= count
    if not missing:
        return chunks
    rest = spread(capacity, demand, missing, crowded=[node_id for node_id, _ in chunks])
    if rest is None or any(node_id in dict(chunks) for node_id, _ in rest):
        return None
    return chunks + rest
