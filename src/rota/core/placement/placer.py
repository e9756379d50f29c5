"""The third step of a round: GPU counts become concrete GPUs.

Jobs whose size does not change stay where they are. A job that shrinks gives up its last workers;
one that grows stays and takes more; both move only if that puts them on fewer nodes. Newcomers go
to the fewest nodes, the tightest fit first. Nobody is given the slots of a job that could keep
them, so a job that runs is never without a place: one that finds none for its new size keeps its
old one. What moves is bound to nodes so that the fewest workers really do (see `binding`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rota.core.binding import Seating, bind
from rota.core.capacity import Capacity
from rota.core.cordons import is_stuck, keeps
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


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the wishes went. `short` are those that found no place, with what would have fit: of
    them, a job that could stay keeps what it had. `left` is what nobody got."""

    allocations: dict[JobId, Allocation]
    short: dict[JobId, int]
    left: Capacity


@dataclass(frozen=True, slots=True)
class Packed:
    """Who sits where before the exchange of equal nodes."""

    settled: dict[JobId, Allocation]
    seatings: list[Seating]
    short: dict[JobId, int]
    capacity: Capacity


def place(
    view: View,
    wishes: Sequence[Wish],
    *,
    movable: Collection[JobId] = (),
    in_order: bool = False,
) -> Placed:
    """Give every wish its slots: a higher priority first, then the largest first (or, with
    `in_order`, as the wishes stand). `movable` jobs are packed anew although they could stay."""
    packed = pack(view, wishes, movable=movable, in_order=in_order)
    allocations = packed.settled
    if packed.seatings:
        fixed = [s.allocation for s in packed.seatings if not s.may_rebind]
        crowded = _nodes_of_spanning([*allocations.values(), *fixed])
        allocations = {**allocations, **bind(packed.capacity, packed.seatings, crowded=crowded)}
        ordered = (wish.job.id for wish in wishes)
        allocations = {job_id: allocations[job_id] for job_id in ordered if job_id in allocations}
    return Placed(allocations, packed.short, packed.capacity)


def pack(
    view: View,
    wishes: Sequence[Wish],
    *,
    movable: Collection[JobId] = (),
    in_order: bool = False,
) -> Packed:
    capacity = view.free.copy()
    _release_the_unwanted(capacity, view, wishes=wishes)
    settled, claims = _settle(capacity, view, wishes=wishes, movable=movable)
    if not in_order:
        claims.sort(key=lambda claim: claim.difficulty(capacity.card_bytes), reverse=True)
    packing = _Packing(capacity, settled)
    packing.meet(claims)
    return Packed(settled, packing.seatings, packing.short, capacity)


def place_next_in_line(placed: Placed, wishes: Iterable[Wish]) -> Placed:
    """Give what is left to those of `wishes` that still find a place, in their order."""
    allocations = dict(placed.allocations)
    packing = _Packing(placed.left, allocations)
    packing.meet([Claim(wish, wish.demand) for wish in wishes])
    allocations.update({s.party.job_id: s.allocation for s in packing.seatings})
    return Placed(allocations, placed.short, placed.left)


@dataclass(frozen=True, slots=True)
class Claim:
    """A wish that needs slots. `held` are those that it has and may keep, which nobody else is
    offered; `before` is where its workers were, be those slots still theirs or not."""

    wish: Wish
    demand: Demand
    before: Allocation = ()
    held: Allocation = ()

    def difficulty(self, card_bytes: dict[str, int]) -> tuple[int, int, int, int]:
        """A higher priority first; then whole GPUs before shares, because they open no card that
        is half used; then what is hardest to place: large workers, then many."""
        demand, workers = self.demand, self.wish.workers
        share_bytes = demand.share_bytes(card_bytes.get(demand.gpu_type, 0))
        return self.wish.job.spec.priority, demand.gpus, workers * demand.gpus, share_bytes


def _release_the_unwanted(capacity: Capacity, view: View, *, wishes: Sequence[Wish]) -> None:
    wanted = {wish.job.id for wish in wishes}
    if all(job_id in wanted for job_id in view.planned):
        return
    for job in view.jobs:
        if job.id in view.planned and job.id not in wanted:
            capacity.give(view.planned[job.id], demand_of(job, view.gpu_types[job.id]))


def _settle(
    capacity: Capacity, view: View, *, wishes: Sequence[Wish], movable: Collection[JobId]
) -> tuple[dict[JobId, Allocation], list[Claim]]:
    """Those who stay as they are, and the claims of the others. Slots that a job may not keep or
    gives up are free when this returns."""
    closed = {node_id: node for node_id, node in view.nodes.items() if node.is_closed}
    settled: dict[JobId, Allocation] = {}
    claims: list[Claim] = []
    for wish in wishes:
        job_id = wish.job.id
        before = view.planned.get(job_id, ())
        if not before:
            claims.append(Claim(wish, wish.demand))
            continue
        had_type = view.gpu_types[job_id]
        there = [slot for slot in before if slot.node in closed] if closed else []
        is_uprooted = job_id in movable or had_type != wish.gpu_type
        if is_uprooted or not all(keeps(wish.job, slot, nodes=closed) for slot in there):
            capacity.give(before, demand_of(wish.job, had_type))
            claims.append(Claim(wish, wish.demand, before))
        elif wish.workers == len(before) or is_stuck(wish.job, before, nodes=closed):
            settled[job_id] = before
        else:
            held = before[: wish.workers]
            capacity.give(before[wish.workers :], wish.demand)
            if wish.workers == len(held) and n_nodes(held) == 1:
                settled[job_id] = held
            else:
                claims.append(Claim(wish, wish.demand, before, held))
    return settled, claims


def _nodes_of_spanning(allocations: Iterable[Allocation]) -> set[NodeId]:
    spanning = (allocation for allocation in allocations if len(allocation) > 1)
    return {slot.node for allocation in spanning if n_nodes(allocation) > 1 for slot in allocation}


class _Packing:
    """Claims being met on one capacity, one after another."""

    def __init__(self, capacity: Capacity, settled: dict[JobId, Allocation]) -> None:
        self.seatings: list[Seating] = []
        self.short: dict[JobId, int] = {}
        self._capacity = capacity
        self._settled = settled
        self._crowded = Counter(_nodes_of_spanning(settled.values()))
        """Nodes that hold a job of several nodes."""
        self._bounds: dict[Demand, int] = {}
        """No more workers with this demand fit, as long as nobody gives anything back."""
        self._gave_back = False

    def meet(self, claims: Sequence[Claim]) -> None:
        """Meet the claims in order. Who moves may make room for those who were turned down."""
        for claim in claims:
            self._crowd(claim.held, 1)
        turned_down = list(claims)
        self._gave_back = True
        while turned_down and self._gave_back:
            self._gave_back = False
            turned_down = [claim for claim in turned_down if not self._try_meet(claim)]
        fitting: dict[Demand, int] = {}
        for claim in turned_down:
            if claim.held:
                self._turn_down_who_stays(claim)
                continue
            if claim.demand not in fitting:
                fitting[claim.demand] = n_fitting(self._capacity, claim.demand)
            self.short[claim.wish.job.id] = fitting[claim.demand]

    def _try_meet(self, claim: Claim) -> bool:
        if claim.held:
            return self._try_resize(claim)
        demand, workers = claim.demand, claim.wish.workers
        if workers > self._bounds.get(demand, workers):
            return False
        chunks = spread(self._capacity, demand, workers=workers, crowded=self._crowded)
        if chunks is None:
            self._bounds[demand] = n_fitting(self._capacity, demand)
            return False
        self._seat(claim, chunks, may_rebind=not (demand.share or demand.shunned))
        return True

    def _try_resize(self, claim: Claim) -> bool:
        """Fewest nodes; among equals where the job already is."""
        if self._try_grow_on_its_node(claim):
            return True
        capacity, demand, workers = self._capacity, claim.demand, claim.wish.workers
        self._crowd(claim.held, -1)
        capacity.give(claim.held, demand)
        there = self._there_first(claim)
        fresh = spread(capacity, demand, workers=workers, crowded=self._crowded)
        stays = there is not None and (fresh is None or len(there) <= len(fresh))
        chunks = there if stays else fresh
        is_smaller = workers == len(claim.held)
        if chunks is None or (is_smaller and len(chunks) >= n_nodes(claim.held)):
            capacity.take_all(claim.held, demand)
            self._crowd(claim.held, 1)
            if is_smaller:
                self._settled[claim.wish.job.id] = claim.held
            return is_smaller
        may_rebind = not (stays or demand.share or demand.shunned)
        allocation = self._seat(claim, chunks, may_rebind=may_rebind)
        if not set(claim.held) <= set(allocation):
            self._gave_back = True
            self._bounds.clear()
        return True

    def _try_grow_on_its_node(self, claim: Claim) -> bool:
        """The usual case of growth, for which nothing has to be given back and compared."""
        missing = claim.wish.workers - len(claim.held)
        node_id = claim.held[0].node
        if not missing or n_nodes(claim.held) > 1:
            return False
        room = self._capacity[node_id]
        if room.node.is_closed or room.fits(claim.demand) < missing:
            return False
        newcomers = Party(claim.wish.job.id, claim.demand)
        more = seat(self._capacity, newcomers, chunks=[(node_id, missing)])
        self._settled[claim.wish.job.id] = claim.held + more
        return True

    def _there_first(self, claim: Claim) -> Chunks | None:
        """As many as fit on the nodes where the job is, then the rest elsewhere."""
        capacity, demand, missing = self._capacity, claim.demand, claim.wish.workers
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
        rest = spread(capacity, demand, workers=missing, crowded=self._crowded, avoid=used)
        return None if rest is None else chunks + rest

    def _seat(self, claim: Claim, chunks: Chunks, *, may_rebind: bool) -> Allocation:
        party = Party(claim.wish.job.id, claim.demand, claim.before)
        allocation = seat(self._capacity, party, chunks=chunks)
        self.seatings.append(Seating(party, chunks, allocation, may_rebind))
        self._crowd(allocation, 1)
        return allocation

    def _crowd(self, allocation: Allocation, sign: int) -> None:
        if len(allocation) < 2:
            return
        for node_id in _nodes_of_spanning([allocation]):
            self._crowded[node_id] += sign
            if not self._crowded[node_id]:
                del self._crowded[node_id]

    def _turn_down_who_stays(self, claim: Claim) -> None:
        self._settled[claim.wish.job.id] = claim.held
        self._capacity.give(claim.held, claim.demand)
        fits = n_fitting(self._capacity, claim.demand)
        fits += sum(self._capacity[slot.node].node.is_closed for slot in claim.held)
        self._capacity.take_all(claim.held, claim.demand)
        self.short[claim.wish.job.id] = max(fits, len(claim.held))
