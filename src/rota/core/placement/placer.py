"""The fourth step of a round: turns numbers of units into concrete nodes and GPUs, in one pass.

A job without a wish stays in its slots. A job that shrinks gives up its last units; a job that
grows takes more slots; a job that has to leave some of its nodes keeps its units on the others. All
of them leave nodes only if that puts them on fewer nodes. New jobs go to the fewest nodes, with the
tightest fit. No job gets the slots of a job that can keep them, so a running job never loses its
place: if its new size does not fit, it keeps its old slots.

Jobs that yield give up slots only if another wish needs them: one after another until the wish
fits. Jobs whose slots the wish does not use keep them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rota.core.model.allocation import TOLERANCE, Allocation, merge_workers, n_nodes
from rota.core.model.job import JobId
from rota.core.model.node import NodeId
from rota.core.placement.capacity import ClusterCapacity
from rota.core.placement.slots import Chunks, assign_slots, choose_nodes, n_fitting
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
    for wish in wishes:
        if wish.demand.merges_units and wish.job.id in packer.allocations:
            merged = merge_workers(packer.allocations[wish.job.id])
            packer.allocations[wish.job.id] = merged
    allocations = {**planned, **packer.allocations}
    if not all(packer.allocations.values()):
        allocations = {job_id: slots for job_id, slots in allocations.items() if slots}
    return Placement(allocations, packer.short, packer.capacity)


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
        self._yielding = [wish for wish in wishes if wish.yields]
        """The last one yields first. Those in `allocations` have yielded."""
        self._hopeless: dict[Demand, int] = {}
        """So many more units with this demand did not fit even after all jobs had yielded."""
        self._bounds: dict[Demand, int] = {}
        """At most so many units with this demand fit, until a job gives slots back."""
        gone = {wish.job.id for wish in self._wishes if not wish.kept}
        self._crowded = set[NodeId]()
        """Nodes that hold a job that spans nodes."""
        for job_id, allocation in planned.items() if self._wishes else ():
            if len(allocation) > 1 and job_id not in gone:
                self._crowd(allocation)

    def _crowd(self, allocation: Allocation) -> None:
        nodes = {slot.node for slot in allocation}
        if len(nodes) > 1:
            self._crowded |= nodes

    def place_all(self) -> None:
        """Place the wishes in order. When a job moves, its old slots may fit wishes that failed
        earlier."""
        for wish in self._wishes:
            self._release(wish)
        unplaced = [wish for wish in self._wishes if wish.units]
        n_before = 0
        while len(unplaced) != n_before:
            n_before = len(unplaced)
            unplaced = [wish for wish in unplaced if not self._place_with_yielding(wish)]
        self._bounds.clear()
        for wish in unplaced:
            self.short[wish.job.id] = self._n_fitting_beside_others(wish)

    # -- giving up slots ------------------------------------------------------------------------

    def _release(self, wish: Wish) -> None:
        """Free the slots that the job does not keep."""
        self.capacity.give(wish.held[len(wish.kept) :], wish.demand)
        if wish.held and not wish.kept:
            self.allocations[wish.job.id] = ()

    def _place_with_yielding(self, wish: Wish) -> bool:
        """Place a wish. If it does not fit, jobs yield one after another until it does. Those that
        yielded in vain take their slots back."""
        if self._try_place(wish):
            return True
        demand, missing = wish.demand, wish.n_missing
        if not self._yielding or missing >= self._hopeless.get(demand, missing + 1):
            return False
        # Jobs without GPUs may help jobs with GPUs, and the other way round, by CPUs and memory.
        types = ("", demand.gpu_type) if demand.gpu_type else ("", *self.capacity.card_bytes)
        held = (each for each in self._yielding if each.job.id not in self.allocations)
        helpful = [each for each in held if each.demand.gpu_type in types]
        needed = missing * demand.n_gpus(self.capacity.card_bytes)
        needed -= self.capacity.free_gpus(demand.gpu_type)
        if needed > sum(each.freed_gpus for each in helpful) + TOLERANCE:
            return False
        is_placed, yielded = False, list[Wish]()
        while helpful and not is_placed:
            yielded.append(helpful.pop())
            self._yield(yielded[-1])
            needed -= yielded[-1].freed_gpus
            is_placed = needed <= TOLERANCE and self._try_place(wish)
        if not is_placed:
            self._hopeless[demand] = missing
        self._take_back(reversed(yielded))
        return is_placed

    def _yield(self, wish: Wish) -> None:
        """Stop the job, or shrink it to the fewest nodes."""
        self._bounds.clear()
        self._release(wish)
        if wish.units:
            self._try_place(wish)

    def _take_back(self, yielded: Iterable[Wish]) -> None:
        """Let jobs that yielded keep their slots if all of these are still free."""
        for wish in yielded:
            shrunk = self.allocations[wish.job.id]
            self.capacity.give(shrunk, wish.demand)
            if self.capacity.try_take(wish.held, wish.demand):
                del self.allocations[wish.job.id]
            else:
                self.capacity.take(shrunk, wish.demand)

    # -- taking slots ---------------------------------------------------------------------------

    def _try_place(self, wish: Wish) -> bool:
        """Find slots on the fewest nodes; with equal numbers of nodes, on the job's own nodes."""
        capacity, demand, kept = self.capacity, wish.demand, wish.kept
        if kept and n_nodes(kept) == 1 and self._try_on_its_node(wish):
            return True
        if not kept and wish.units > self._bounds.get(demand, wish.units):
            return False
        capacity.give(kept, demand)
        chunks = self._choose_nodes(wish)
        is_smaller = len(kept) == wish.units
        if chunks is None or (is_smaller and len(chunks) >= n_nodes(kept)):
            capacity.take(kept, demand)
            if is_smaller:
                self.allocations[wish.job.id] = kept
            elif not kept:
                self._bounds[demand] = n_fitting(capacity, demand)
            return is_smaller
        slots = assign_slots(capacity, demand, chunks=chunks, before=wish.held)
        self.allocations[wish.job.id] = slots
        self._crowd(slots)
        if not set(kept) <= set(slots):
            self._bounds.clear()
            self._hopeless.clear()
        return True

    def _try_on_its_node(self, wish: Wish) -> bool:
        """The usual cases of a shrink and of growth, which need no comparison of alternatives."""
        missing, room = wish.n_missing, self.capacity[wish.held[0].node]
        if missing and (room.node.is_closed or room.fits(wish.demand) < missing):
            return False
        if missing and wish.demand.merges_units:
            return False
        more = assign_slots(self.capacity, wish.demand, chunks=[(room.node.id, missing)])
        self.allocations[wish.job.id] = wish.kept + more
        return True

    def _choose_nodes(self, wish: Wish) -> Chunks | None:
        """The job's own nodes first, unless other nodes would be fewer."""
        own = self._own_nodes_first(wish) if wish.held else None
        if own and len(own) == 1:
            return own
        others = choose_nodes(self.capacity, wish.demand, units=wish.units, crowded=self._crowded)
        return own if own and (others is None or len(own) <= len(others)) else others

    def _own_nodes_first(self, wish: Wish) -> Chunks | None:
        """As many units as fit on the job's own nodes, then the rest elsewhere."""
        capacity, demand, missing = self.capacity, wish.demand, wish.units
        chunks: Chunks = []
        own_nodes = Counter(slot.node for slot in wish.held[: wish.units])
        for node_id, own in own_nodes.most_common():
            is_closed = not capacity.has_node(node_id) or capacity[node_id].node.is_closed
            stay = own if wish.kept else 0
            count = min(missing, stay if is_closed else capacity[node_id].fits(demand))
            if count:
                chunks.append((node_id, count))
                missing -= count
        if not missing:
            return chunks
        used = [node_id for node_id, _ in chunks]
        rest = choose_nodes(capacity, demand, units=missing, crowded=self._crowded, avoid=used)
        if rest is None or 0 < demand.max_nodes < len(chunks) + len(rest):
            return None
        return chunks + rest

    def _n_fitting_beside_others(self, wish: Wish) -> int:
        """How many units would fit beside all other jobs."""
        capacity, demand, kept = self.capacity, wish.demand, wish.kept
        if not kept and demand not in self._bounds:
            self._bounds[demand] = n_fitting(capacity, demand)
        if not kept:
            return self._bounds[demand]
        capacity.give(kept, demand)
        fits = n_fitting(capacity, demand)
        fits += sum(capacity[slot.node].node.is_closed_for(slot.gpus) for slot in kept)
        capacity.take(kept, demand)
        return max(fits, len(kept))
