"""The third step of a round: turns numbers of units into concrete nodes and GPUs, in one pass.

A job without a wish stays in its slots. A job that shrinks gives up its last units; a job that
grows stays and takes more slots; both move only if that puts them on fewer nodes. New jobs go to
the fewest nodes, with the tightest fit. No job gets the slots of a job that can keep them, so a
running job never loses its place: if its new size does not fit, it keeps its old slots.

Jobs that yield give up slots only if another wish needs them: first as many as are needed by
number, then one after another until the wish fits. A job whose slots are still free in the end
keeps them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from rota.core.model.allocation import TOLERANCE, Allocation, n_nodes
from rota.core.model.job import JobId
from rota.core.model.node import NodeId
from rota.core.placement.capacity import ClusterCapacity
from rota.core.placement.slots import (
    Chunks,
    PackedWish,
    assign_slots,
    choose_nodes,
    match_nodes,
    n_fitting,
)
from rota.core.placement.wish import Demand, Wish


@dataclass(frozen=True, slots=True)
class Placement:
    """The slots of all jobs after a placement.

    `short` are the wishes that do not fit, with the number of units that would have fit; a job that
    can stay keeps its slots. `left` is the remaining capacity.
    """

    allocations: dict[JobId, Allocation]
    short: dict[JobId, int]
    left: ClusterCapacity


def place(
    wishes: Sequence[Wish], *, capacity: ClusterCapacity, planned: Mapping[JobId, Allocation]
) -> Placement:
    """Fulfil the wishes in their order. `planned` are the slots of all jobs, and `capacity` is what
    they leave free. Wishes that yield come in the order in which they are spared."""
    packer = _Packer(capacity.copy(), planned, wishes)
    packer.place_all()
    allocations = {**planned, **packer.allocations}
    if not all(packer.allocations.values()):
        allocations = {job_id: slots for job_id, slots in allocations.items() if slots}
    return Placement(allocations, packer.short, packer.capacity)


def _spanned_nodes(allocation: Allocation) -> set[NodeId]:
    """The nodes of an allocation that spans several nodes."""
    nodes = {slot.node for slot in allocation} if len(allocation) > 1 else set[NodeId]()
    return nodes if len(nodes) > 1 else set[NodeId]()


class _Packer:
    """Places wishes on one capacity, one after another."""

    def __init__(
        self,
        capacity: ClusterCapacity,
        planned: Mapping[JobId, Allocation],
        wishes: Sequence[Wish],
    ) -> None:
        self.capacity = capacity
        self.allocations: dict[JobId, Allocation] = {}
        """The new slots of jobs that change."""
        self.short: dict[JobId, int] = {}
        self._wishes = [wish for wish in wishes if not wish.yields]
        self._yielding = {wish.job.id: wish for wish in wishes if wish.yields}
        """Jobs that still hold their slots; the last one yields first."""
        self._yielded: dict[JobId, Wish] = {}
        self._hopeless: dict[Demand, int] = {}
        """So many more units with this demand did not fit even after all jobs had yielded."""
        self._packed: dict[JobId, PackedWish] = {}
        self._crowded = Counter[NodeId]()
        """Nodes that hold a job that spans nodes, with the number of such jobs."""
        for allocation in planned.values() if self._wishes else ():
            if len(allocation) > 1:
                self._count_spanning(allocation, 1)
        self._bounds: dict[Demand, int] = {}
        """At most so many units with this demand fit, until a job gives slots back."""
        self._has_released = False

    def place_all(self) -> None:
        """Place the wishes in order. When a job moves, its old slots may fit wishes that failed
        earlier."""
        for wish in self._wishes:
            self._release(wish)
        unplaced = [wish for wish in self._wishes if wish.units]
        self._yield_by_number(unplaced)
        self._has_released = True
        while unplaced and self._has_released:
            self._has_released = False
            unplaced = [wish for wish in unplaced if not self._place_with_yielding(wish)]
        fitting: dict[Demand, int] = {}
        for wish in unplaced:
            self._record_short(wish, fitting)
        self._take_back(list(self._yielded.values()))
        self._exchange_equal_nodes()

    # -- giving up slots ------------------------------------------------------------------------

    def _release(self, wish: Wish) -> None:
        """Free the slots that the job does not keep."""
        kept = () if wish.leaves else wish.held[: wish.units]
        self._count_spanning(wish.held, -1)
        self._count_spanning(kept, 1)
        self.capacity.give(wish.held[len(kept) :], wish.held_demand)
        if not kept and wish.held:
            self.allocations[wish.job.id] = ()

    def _yield_by_number(self, wishes: Iterable[Wish]) -> None:
        """Let jobs yield until the number of free GPUs suffices, wherever the GPUs are. Wishes that
        cannot be fulfilled by number do not count."""
        yielding = list(self._yielding.values())
        if not yielding:
            return
        left: dict[str, float] = {}
        needed: dict[str, float] = {}
        card_bytes = self.capacity.card_bytes
        for wish in wishes:
            demand = wish.demand
            if demand.gpu_type not in left:
                could_yield = (w for w in yielding if w.demand.gpu_type == demand.gpu_type)
                free = self.capacity.free_gpus(demand.gpu_type)
                left[demand.gpu_type] = free + sum(w.freed_gpus for w in could_yield)
                needed[demand.gpu_type] = -free
            gpus = wish.n_missing * demand.n_gpus(card_bytes)
            if gpus <= left[demand.gpu_type] + TOLERANCE:
                left[demand.gpu_type] -= gpus
                needed[demand.gpu_type] += gpus
        for wish in reversed(yielding):
            if needed.get(wish.demand.gpu_type, 0.0) > TOLERANCE:
                needed[wish.demand.gpu_type] -= wish.freed_gpus
                self._yield(wish)

    def _place_with_yielding(self, wish: Wish) -> bool:
        """Place a wish. If it does not fit, more and more jobs yield until it does. Jobs that
        yielded in vain take their slots back."""
        if self._try_place(wish):
            return True
        n_hopeless = self._hopeless.get(wish.demand, wish.n_missing + 1)
        if not self._yielding or wish.n_missing >= n_hopeless:
            return False
        is_placed, yielded = False, list[Wish]()
        while not is_placed and (more := self._next_to_yield(wish, 1 + len(yielded))):
            for each in more:
                self._yield(each)
            yielded += more
            is_placed = self._try_place(wish)
        if not is_placed:
            self._hopeless[wish.demand] = wish.n_missing
        self._take_back(yielded)
        return is_placed

    def _next_to_yield(self, wish: Wish, count: int) -> list[Wish]:
        """The next jobs to yield that may make space for the wish. Jobs without GPUs may help
        jobs with GPUs, and the other way round, by their CPUs and memory."""
        gpu_type = wish.demand.gpu_type
        helpful = (
            each
            for each in reversed(self._yielding.values())
            if not gpu_type or each.demand.gpu_type in ("", gpu_type)
        )
        return list(islice(helpful, count))

    def _yield(self, wish: Wish) -> None:
        """Stop the job, or shrink it to the fewest nodes."""
        self._yielded[wish.job.id] = self._yielding.pop(wish.job.id)
        self._bounds.clear()
        self._release(wish)
        if wish.units:
            self._try_place(wish)

    def _take_back(self, yielded: Sequence[Wish]) -> None:
        """Let jobs that yielded keep their slots if all of these are still free, first the job that
        yielded last."""
        for wish in reversed(yielded):
            job_id, demand = wish.job.id, wish.held_demand
            shrunk = self.allocations[job_id]
            self.capacity.give(shrunk, demand)
            if self.capacity.try_take_all(wish.held, demand):
                self._yielding[job_id] = self._yielded.pop(job_id)
                self._count_spanning(shrunk, -1)
                self._count_spanning(wish.held, 1)
                del self.allocations[job_id]
                self._packed.pop(job_id, None)
            else:
                self.capacity.take_all(shrunk, demand)

    # -- taking slots ---------------------------------------------------------------------------

    def _try_place(self, wish: Wish) -> bool:
        if wish.held and not wish.leaves:
            return self._try_resize(wish, wish.held[: wish.units])
        demand, units = wish.demand, wish.units
        if units > self._bounds.get(demand, units):
            return False
        chunks = choose_nodes(self.capacity, demand, units=units, crowded=self._crowded)
        if chunks is None:
            self._bounds[demand] = n_fitting(self.capacity, demand)
            return False
        self._assign(wish, chunks, stays=False)
        return True

    def _try_resize(self, wish: Wish, held: Allocation) -> bool:
        """Resize on the fewest nodes; with equal numbers of nodes, on the job's current nodes."""
        capacity, demand, units = self.capacity, wish.demand, wish.units
        is_smaller = units == len(held)
        if is_smaller and n_nodes(held) == 1:
            self.allocations[wish.job.id] = held
            return True
        if self._try_grow_on_its_node(wish, held):
            return True
        self._count_spanning(held, -1)
        capacity.give(held, demand)
        there = self._current_nodes_first(wish, held)
        fresh = choose_nodes(capacity, demand, units=units, crowded=self._crowded)
        stays = there is not None and (fresh is None or len(there) <= len(fresh))
        chunks = there if stays else fresh
        if chunks is None or (is_smaller and len(chunks) >= n_nodes(held)):
            capacity.take_all(held, demand)
            self._count_spanning(held, 1)
            if is_smaller:
                self.allocations[wish.job.id] = held
            return is_smaller
        allocation = self._assign(wish, chunks, stays=stays)
        if not set(held) <= set(allocation):
            self._has_released = True
            self._bounds.clear()
            self._hopeless.clear()
        return True

    def _try_grow_on_its_node(self, wish: Wish, held: Allocation) -> bool:
        """The usual case of growth, which needs no comparison of alternatives."""
        missing, node_id = wish.units - len(held), held[0].node
        room = self.capacity[node_id]
        if not missing or n_nodes(held) > 1 or room.node.is_closed:
            return False
        if room.fits(wish.demand) < missing:
            return False
        more = assign_slots(self.capacity, wish.demand, chunks=[(node_id, missing)])
        self.allocations[wish.job.id] = held + more
        return True

    def _current_nodes_first(self, wish: Wish, held: Allocation) -> Chunks | None:
        """As many units as fit on the job's current nodes, then the rest elsewhere."""
        capacity, demand, missing = self.capacity, wish.demand, wish.units
        chunks: Chunks = []
        for node_id, own in Counter(slot.node for slot in held).most_common():
            room = capacity[node_id]
            count = min(missing, own if room.node.is_closed else room.fits(demand))
            if count:
                chunks.append((node_id, count))
                missing -= count
        if not missing:
            return chunks
        used = [node_id for node_id, _ in chunks]
        rest = choose_nodes(capacity, demand, units=missing, crowded=self._crowded, avoid=used)
        return None if rest is None else chunks + rest

    def _assign(self, wish: Wish, chunks: Chunks, *, stays: bool) -> Allocation:
        demand = wish.demand
        slots = assign_slots(self.capacity, demand, chunks=chunks, before=wish.held)
        may_rebind = not (stays or demand.share or demand.excluded_nodes)
        self._packed[wish.job.id] = PackedWish(wish, chunks, slots, may_rebind)
        self.allocations[wish.job.id] = slots
        self._count_spanning(slots, 1)
        return slots

    def _exchange_equal_nodes(self) -> None:
        loose = [packed for packed in self._packed.values() if packed.may_rebind]
        if not any(packed.wish.held for packed in loose):
            return
        for packed in loose:
            self._count_spanning(packed.allocation, -1)
        matched = match_nodes(self.capacity, loose, crowded=self._crowded)
        for packed, allocation in zip(loose, matched, strict=True):
            self.allocations[packed.wish.job.id] = allocation
            self._count_spanning(allocation, 1)

    def _record_short(self, wish: Wish, fitting: dict[Demand, int]) -> None:
        """Record how many units would fit beside all other jobs."""
        capacity, demand = self.capacity, wish.demand
        held = () if wish.leaves else wish.held[: wish.units]
        if held:
            capacity.give(held, demand)
            fits = n_fitting(capacity, demand)
            fits += sum(capacity[slot.node].node.is_closed for slot in held)
            capacity.take_all(held, demand)
        elif demand in fitting:
            fits = fitting[demand]
        else:
            fits = fitting[demand] = n_fitting(capacity, demand)
        self.short[wish.job.id] = max(fits, len(held))

    def _count_spanning(self, allocation: Allocation, sign: int) -> None:
        for node_id in _spanned_nodes(allocation):
            self._crowded[node_id] += sign
            if not self._crowded[node_id]:
                del self._crowded[node_id]
