"""The third step of a round: turns numbers of workers into concrete nodes and GPUs.

A job whose size does not change stays in its slots. A job that shrinks gives up its last workers; a
job that grows stays and takes more slots; both move only if that puts them on fewer nodes. New jobs
go to the fewest nodes, with the tightest fit. No job gets the slots of a job that can keep them, so
a running job never loses its place: if its new size does not fit, it keeps its old slots. Jobs that
move are matched to nodes so that the fewest workers move (see `node_matching`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rota.core.model.allocation import Allocation, n_nodes
from rota.core.model.job import Job, JobId
from rota.core.model.node import NodeId
from rota.core.placement.bin_packing import Chunks, choose_nodes, n_fitting
from rota.core.placement.cluster_capacity import ClusterCapacity
from rota.core.placement.cordons import is_size_frozen, may_keep_slot
from rota.core.placement.node_matching import SlotAssignment, match_nodes
from rota.core.placement.slot_assignment import SlotRequest, assign_slots, chunks_of
from rota.core.placement.worker_demand import Demand, demand_of
from rota.core.scheduling.view import View


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A job's target: a number of workers on GPUs of one type."""

    job: Job
    workers: int
    gpu_type: str

    @property
    def demand(self) -> Demand:
        return demand_of(self.job, self.gpu_type)


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """The slots of the requests. `short` are requests that did not fit, with the number of workers
    that would have fit; a job in `short` that can stay keeps its slots. `left` is the remaining
    capacity."""

    allocations: dict[JobId, Allocation]
    short: dict[JobId, int]
    left: ClusterCapacity


@dataclass(frozen=True, slots=True)
class PackingResult:
    """The slots of the requests before equal nodes are exchanged."""

    settled: dict[JobId, Allocation]
    assignments: list[SlotAssignment]
    short: dict[JobId, int]
    capacity: ClusterCapacity


def place(
    view: View,
    requests: Sequence[PlacementRequest],
    *,
    movable: Collection[JobId] = (),
    in_order: bool = False,
) -> PlacementResult:
    """Give every request its slots: a higher priority first, then the largest first (or, with
    `in_order`, in the given order). `movable` jobs are packed again although they could stay."""
    packed = pack(view, requests, movable=movable, in_order=in_order)
    allocations = packed.settled
    if packed.assignments:
        fixed = [s.allocation for s in packed.assignments if not s.may_rebind]
        crowded = _nodes_of_spanning([*allocations.values(), *fixed])
        allocations = {
            **allocations,
            **match_nodes(packed.capacity, packed.assignments, crowded=crowded),
        }
        ordered = (request.job.id for request in requests)
        allocations = {job_id: allocations[job_id] for job_id in ordered if job_id in allocations}
    return PlacementResult(allocations, packed.short, packed.capacity)


def pack(
    view: View,
    requests: Sequence[PlacementRequest],
    *,
    movable: Collection[JobId] = (),
    in_order: bool = False,
) -> PackingResult:
    """Give every request its slots, without exchanging equal nodes."""
    capacity = view.free.copy()
    _release_stopped_jobs(capacity, view, requests=requests)
    settled, claims = _keep_in_place(capacity, view, requests=requests, movable=movable)
    if not in_order:
        claims.sort(key=lambda claim: claim.difficulty(capacity.card_bytes), reverse=True)
    packing = _Packer(capacity, settled)
    packing.place_all(claims)
    return PackingResult(settled, packing.assignments, packing.short, capacity)


def place_waiting(placed: PlacementResult, requests: Iterable[PlacementRequest]) -> PlacementResult:
    """Place those of `requests` that fit in the remaining capacity, in their order."""
    allocations = dict(placed.allocations)
    packing = _Packer(placed.left, allocations)
    packing.place_all([Claim(request, request.demand) for request in requests])
    allocations.update({s.slot_request.job_id: s.allocation for s in packing.assignments})
    return PlacementResult(allocations, placed.short, placed.left)


@dataclass(frozen=True, slots=True)
class Claim:
    """A request that needs slots. `held` are slots that the job may keep, which no other job is
    offered. `before` are the slots that its workers had, whether or not they are still free."""

    request: PlacementRequest
    demand: Demand
    before: Allocation = ()
    held: Allocation = ()

    def difficulty(self, card_bytes: dict[str, int]) -> tuple[int, int, int, int]:
        """Sort key: a higher priority first; then whole GPUs before shares, because they leave no
        GPU partly used; then the requests that are hardest to place: large workers, then many
        workers."""
        demand, workers = self.demand, self.request.workers
        share_bytes = demand.share_bytes(card_bytes.get(demand.gpu_type, 0))
        return self.request.job.spec.priority, demand.gpus, workers * demand.gpus, share_bytes


def _release_stopped_jobs(
    capacity: ClusterCapacity, view: View, *, requests: Sequence[PlacementRequest]
) -> None:
    """Give back the slots of planned jobs that have no request."""
    wanted = {request.job.id for request in requests}
    if all(job_id in wanted for job_id in view.planned):
        return
    for job in view.jobs:
        if job.id in view.planned and job.id not in wanted:
            capacity.give(view.planned[job.id], demand_of(job, view.gpu_types[job.id]))


def _keep_in_place(
    capacity: ClusterCapacity,
    view: View,
    *,
    requests: Sequence[PlacementRequest],
    movable: Collection[JobId],
) -> tuple[dict[JobId, Allocation], list[Claim]]:
    """Jobs that stay unchanged, and the claims of the others. Slots that a job must leave or gives
    up are free when this function returns."""
    closed = {node_id: node for node_id, node in view.nodes.items() if node.is_closed}
    settled: dict[JobId, Allocation] = {}
    claims: list[Claim] = []
    for request in requests:
        job_id = request.job.id
        before = view.planned.get(job_id, ())
        if not before:
            claims.append(Claim(request, request.demand))
            continue
        had_type = view.gpu_types[job_id]
        there = [slot for slot in before if slot.node in closed] if closed else []
        must_move = job_id in movable or had_type != request.gpu_type
        if must_move or not all(may_keep_slot(request.job, slot, nodes=closed) for slot in there):
            capacity.give(before, demand_of(request.job, had_type))
            claims.append(Claim(request, request.demand, before))
        elif request.workers == len(before) or is_size_frozen(request.job, before, nodes=closed):
            settled[job_id] = before
        else:
            held = before[: request.workers]
            capacity.give(before[request.workers :], request.demand)
            if request.workers == len(held) and n_nodes(held) == 1:
                settled[job_id] = held
            else:
                claims.append(Claim(request, request.demand, before, held))
    return settled, claims


def _nodes_of_spanning(allocations: Iterable[Allocation]) -> set[NodeId]:
    """The nodes of all allocations that span several nodes."""
    spanning = (allocation for allocation in allocations if len(allocation) > 1)
    return {slot.node for allocation in spanning if n_nodes(allocation) > 1 for slot in allocation}


class _Packer:
    """Places claims on one capacity, one after another."""

    def __init__(self, capacity: ClusterCapacity, settled: dict[JobId, Allocation]) -> None:
        self.assignments: list[SlotAssignment] = []
        self.short: dict[JobId, int] = {}
        self._capacity = capacity
        self._settled = settled
        self._crowded = Counter(_nodes_of_spanning(settled.values()))
        """Nodes that hold a job that spans nodes, with the number of such jobs."""
        self._bounds: dict[Demand, int] = {}
        """At most so many workers with this demand fit, until a job gives slots back."""
        self._has_released = False

    def place_all(self, claims: Sequence[Claim]) -> None:
        """Place the claims in order. When a job moves, its old slots may fit claims that failed
        earlier."""
        for claim in claims:
            self._count_spanning(claim.held, 1)
        unplaced = list(claims)
        self._has_released = True
        while unplaced and self._has_released:
            self._has_released = False
            unplaced = [claim for claim in unplaced if not self._try_place(claim)]
        fitting: dict[Demand, int] = {}
        for claim in unplaced:
            if claim.held:
                self._record_failed_resize(claim)
                continue
            if claim.demand not in fitting:
                fitting[claim.demand] = n_fitting(self._capacity, claim.demand)
            self.short[claim.request.job.id] = fitting[claim.demand]

    def _try_place(self, claim: Claim) -> bool:
        if claim.held:
            return self._try_resize(claim)
        demand, workers = claim.demand, claim.request.workers
        if workers > self._bounds.get(demand, workers):
            return False
        chunks = choose_nodes(self._capacity, demand, workers=workers, crowded=self._crowded)
        if chunks is None:
            self._bounds[demand] = n_fitting(self._capacity, demand)
            return False
        self._assign(claim, chunks, may_rebind=not (demand.share or demand.excluded_nodes))
        return True

    def _try_resize(self, claim: Claim) -> bool:
        """Resize on the fewest nodes; with equal numbers of nodes, on the job's current nodes."""
        if self._try_grow_on_its_node(claim):
            return True
        capacity, demand, workers = self._capacity, claim.demand, claim.request.workers
        self._count_spanning(claim.held, -1)
        capacity.give(claim.held, demand)
        there = self._current_nodes_first(claim)
        fresh = choose_nodes(capacity, demand, workers=workers, crowded=self._crowded)
        stays = there is not None and (fresh is None or len(there) <= len(fresh))
        chunks = there if stays else fresh
        is_smaller = workers == len(claim.held)
        if chunks is None or (is_smaller and len(chunks) >= n_nodes(claim.held)):
            capacity.take_all(claim.held, demand)
            self._count_spanning(claim.held, 1)
            if is_smaller:
                self._settled[claim.request.job.id] = claim.held
            return is_smaller
        may_rebind = not (stays or demand.share or demand.excluded_nodes)
        allocation = self._assign(claim, chunks, may_rebind=may_rebind)
        if not set(claim.held) <= set(allocation):
            self._has_released = True
            self._bounds.clear()
        return True

    def _try_grow_on_its_node(self, claim: Claim) -> bool:
        """The usual case of growth, which needs no comparison of alternatives."""
        missing = claim.request.workers - len(claim.held)
        node_id = claim.held[0].node
        if not missing or n_nodes(claim.held) > 1:
            return False
        room = self._capacity[node_id]
        if room.node.is_closed or room.fits(claim.demand) < missing:
            return False
        newcomers = SlotRequest(claim.request.job.id, claim.demand)
        more = assign_slots(self._capacity, newcomers, chunks=[(node_id, missing)])
        self._settled[claim.request.job.id] = claim.held + more
        return True

    def _current_nodes_first(self, claim: Claim) -> Chunks | None:
        """As many workers as fit on the job's current nodes, then the rest elsewhere."""
        capacity, demand, missing = self._capacity, claim.demand, claim.request.workers
        chunks: Chunks = []
        for node_id, own in chunks_of(claim.held):
            room = capacity[node_id]
            count = min(missing, own if room.node.is_closed else room.fits(demand))
            if count:
                chunks.append((node_id, count))
                missing -= count
        if not missing:
            return chunks
        used = [node_id for node_id, _ in chunks]
        rest = choose_nodes(capacity, demand, workers=missing, crowded=self._crowded, avoid=used)
        return None if rest is None else chunks + rest

    def _assign(self, claim: Claim, chunks: Chunks, *, may_rebind: bool) -> Allocation:
        slot_request = SlotRequest(claim.request.job.id, claim.demand, claim.before)
        allocation = assign_slots(self._capacity, slot_request, chunks=chunks)
        self.assignments.append(SlotAssignment(slot_request, chunks, allocation, may_rebind))
        self._count_spanning(allocation, 1)
        return allocation

    def _count_spanning(self, allocation: Allocation, sign: int) -> None:
        if len(allocation) < 2:
            return
        for node_id in _nodes_of_spanning([allocation]):
            self._crowded[node_id] += sign
            if not self._crowded[node_id]:
                del self._crowded[node_id]

    def _record_failed_resize(self, claim: Claim) -> None:
        self._settled[claim.request.job.id] = claim.held
        self._capacity.give(claim.held, claim.demand)
        fits = n_fitting(self._capacity, claim.demand)
        fits += sum(self._capacity[slot.node].node.is_closed for slot in claim.held)
        self._capacity.take_all(claim.held, claim.demand)
        self.short[claim.request.job.id] = max(fits, len(claim.held))
