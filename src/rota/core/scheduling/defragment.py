"""Makes a hole for a job that waits only because what is free is scattered.

Called by the round, at most once, after the guard, for the first job in line that found no place
although enough is free in number. Jobs that run on one node, long enough not to be protected and
at no higher priority may be moved to other nodes: as few and as cheap ones as open a hole on some
node; if no node can be opened like that, and the jobs are few, all are packed anew. Jobs of a lower
priority are moved however long they have run and whatever that costs, and one that could go
nowhere else gives way.

A move pays if the GPU-seconds that are lost by those who move (see `cost.loss_gpu_s`) are fewer
than those that the waiting job gains: its GPUs times how long it would have had to wait, which is
until enough of the others are expected to have ended, or times its own remaining time if that is
shorter.

A job that has waited for `starvation_after_s` has its hole whatever that costs: those who come
later in line are seated after it, and whoever then finds no place waits.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from rota.core.capacity import Capacity
from rota.core.cost import loss_gpu_s, protected_until_s
from rota.core.demand import Demand, demand_of
from rota.core.guard import Guarded
from rota.core.model import Allocation, Job, JobId, NodeId, Queued, Running, n_gpus, n_nodes
from rota.core.packing import n_fitting, spread
from rota.core.placement import Placed, Wish, place
from rota.core.policy import TOLERANCE
from rota.core.progress import remaining_s
from rota.core.room import Room
from rota.core.seating import Party, seat
from rota.core.view import View

NODES_MAX = 32
"""So many nodes are tried for each worker that has no place, the emptiest first."""
REPACKED_JOBS_MAX = 100


def defragment(view: View, guarded: Guarded, *, short: Mapping[JobId, int]) -> Guarded | None:
    """The plan with a hole and somebody in it; None if nobody needs one or it does not pay."""
    wish = next(_who_needs_a_hole(view, guarded, short=short), None)
    if wish is None:
        return None
    search = _Search(view, guarded, wish)
    placed = search.with_holes() or search.packed_anew()
    if is_starving(wish.job, view):
        placed = placed or search.before_all_others()
    elif placed and not (view.rules.is_guarded and search.is_worth_it(placed)):
        placed = None
    if placed is None:
        return None
    waits = {job_id: why for job_id, why in guarded.waits.items() if job_id != wish.job.id}
    return replace(guarded, placed=placed, waits=waits)


def is_starving(job: Job, view: View) -> bool:
    phase = job.phase
    waited_s = view.now - phase.since_s if isinstance(phase, Queued) else 0.0
    return waited_s >= view.rules.starvation_after_s


def _who_needs_a_hole(
    view: View, guarded: Guarded, *, short: Mapping[JobId, int]
) -> Iterator[Wish]:
    left = guarded.placed.left
    for wish in guarded.wishes:
        if wish.job.id not in short or wish.job.id in guarded.allocations:
            continue
        demand = wish.demand
        each = float(demand.gpus)
        if demand.share:
            card_bytes = view.empty.card_bytes[demand.gpu_type]
            each = demand.share_bytes(card_bytes) / card_bytes
        if each and wish.workers * each <= left.free_gpus(demand.gpu_type) + TOLERANCE:
            yield wish


@dataclass(frozen=True, slots=True)
class _Opened:
    """One node with room for one worker more, and what that takes."""

    loss_gpu_s: float
    capacity: Capacity
    moves: dict[JobId, Allocation]
    """Where those go who make room; nowhere, if they give way."""


class _Search:
    def __init__(self, view: View, guarded: Guarded, wish: Wish) -> None:
        self._view = view
        self._guarded = guarded
        self._wish = wish
        self._demand = wish.demand
        self._jobs = {job.id: job for job in view.jobs}
        self._movable = {job.id: job for job in self._find_movable()}

    def with_holes(self) -> Placed | None:
        """Open one node after another until there is room for all workers of the job."""
        placed, wish, demand = self._guarded.placed, self._wish, self._demand
        capacity, allocations = placed.left, dict(placed.allocations)
        movable = dict(self._movable)
        n_missing = wish.workers - n_fitting(capacity, demand)
        for _ in range(n_missing):
            opened = self._cheapest(capacity, movable)
            if opened is None and any(map(self._outranks, movable.values())):
                opened = self._cheapest(capacity, movable, is_forced=True)
            if opened is None:
                return None
            capacity = opened.capacity
            for job_id, where in opened.moves.items():
                allocations[job_id] = where
                del movable[job_id]
        allocations = {job_id: held for job_id, held in allocations.items() if held}
        chunks = spread(capacity, demand, workers=wish.workers)
        if chunks is None:
            return None
        capacity = capacity.copy()
        allocations[wish.job.id] = seat(capacity, Party(wish.job.id, demand), chunks=chunks)
        short = {job_id: fits for job_id, fits in placed.short.items() if job_id != wish.job.id}
        return Placed(allocations, short, capacity)

    def packed_anew(self) -> Placed | None:
        """All at once, if they are few; nobody may come off worse."""
        if len(self._movable) > REPACKED_JOBS_MAX:
            return None
        before = self._guarded.allocations
        placed = place(self._view, self._guarded.wishes, movable=self._movable)
        if self._wish.job.id not in placed.allocations:
            return None
        after = placed.allocations
        if any(len(after.get(job_id, ())) < len(held) for job_id, held in before.items()):
            return None
        return placed

    def before_all_others(self) -> Placed | None:
        """The job first, then those who may be moved and the others in their order."""
        others = [wish for wish in self._guarded.wishes if wish.job.id != self._wish.job.id]
        wishes = [self._wish, *others]
        placed = place(self._view, wishes, movable=self._movable, in_order=True)
        return placed if self._wish.job.id in placed.allocations else None

    def is_worth_it(self, placed: Placed) -> bool:
        after = placed.allocations
        changed = [
            self._jobs[job_id]
            for job_id, held in self._guarded.allocations.items()
            if after.get(job_id) is not held and after.get(job_id) != held
        ]
        return all(map(self._outranks, changed)) or self._pays(placed, changed)

    def _outranks(self, job: Job) -> bool:
        return job.spec.priority < self._wish.job.spec.priority

    def _pays(self, placed: Placed, changed: Iterable[Job]) -> bool:
        after = placed.allocations
        lost = sum(loss_gpu_s(job, self._view) for job in changed)
        own_s = remaining_s(self._wish.job, self._view.now, workers=self._wish.workers)
        return lost == 0 or lost < n_gpus(after[self._wish.job.id]) * min(
            own_s, self._waits_s(at_most=own_s)
        )

    def _find_movable(self) -> Iterator[Job]:
        view = self._view
        for job_id, held in self._guarded.allocations.items():
            job = self._jobs[job_id]
            phase = job.phase
            if (
                isinstance(phase, Running)
                and not phase.joining
                and held is view.planned.get(job_id)
                and n_nodes(held) == 1
                and not view.nodes[held[0].node].is_closed
                and job.spec.priority <= self._wish.job.spec.priority
                and (protected_until_s(job, view) <= view.now or self._outranks(job))
            ):
                yield job

    def _cheapest(
        self, capacity: Capacity, movable: Mapping[JobId, Job], *, is_forced: bool = False
    ) -> _Opened | None:
        occupants: dict[NodeId, list[Job]] = defaultdict(list)
        for job in movable.values():
            occupants[job.allocation[0].node].append(job)
        best: _Opened | None = None
        n_tried = 0
        for room in capacity.by_size(Demand(gpu_type=self._demand.gpu_type)):
            node = room.node
            if node.id not in occupants or not self._demand.labels <= node.labels:
                continue
            if node.id in self._demand.shunned:
                continue
            for order in self._orders(occupants[room.node.id]):
                opened = self._opened(capacity, room, occupants=order, is_forced=is_forced)
                if opened and (best is None or opened.loss_gpu_s < best.loss_gpu_s):
                    best = opened
            n_tried += 1
            if n_tried == NODES_MAX:
                break
        return best

    def _orders(self, occupants: list[Job]) -> Iterator[list[Job]]:
        """The cheapest first; and the largest, because small ones may take the only room that
        would hold it."""
        loss = {job.id: loss_gpu_s(job, self._view) for job in occupants}
        cheapest_first = sorted(
            occupants, key=lambda job: (job.spec.priority, loss[job.id], job.id)
        )
        largest_first = sorted(cheapest_first, key=lambda job: -n_gpus(job.allocation))
        yield cheapest_first
        if largest_first != cheapest_first:
            yield largest_first

    def _opened(
        self, capacity: Capacity, room: Room, *, occupants: list[Job], is_forced: bool
    ) -> _Opened | None:
        """Move one after the other away until one worker more fits. By force: also those who can
        go nowhere, if they have to give way."""
        node_id, enough = room.node.id, room.fits(self._demand) + 1
        trial = capacity.copy()
        moves: dict[JobId, Allocation] = {}
        lost = 0.0
        for job in occupants:
            moved = self._move_away(trial, job)
            if moved is None and not (is_forced and self._outranks(job)):
                continue
            trial.give(self._guarded.allocations[job.id], self._demand_of(job.id))
            moves[job.id] = moved or ()
            lost += loss_gpu_s(job, self._view)
            if trial[node_id].fits(self._demand) >= enough:
                return _Opened(lost, trial, moves)
        return None

    def _move_away(self, capacity: Capacity, job: Job) -> Allocation | None:
        """To another node that holds the whole job, or not at all. What it held is still held."""
        held, demand = self._guarded.allocations[job.id], self._demand_of(job.id)
        chunks = spread(capacity, demand, workers=len(held), avoid=[held[0].node])
        if chunks is None or len(chunks) > 1:
            return None
        return seat(capacity, Party(job.id, demand), chunks=chunks)

    def _demand_of(self, job_id: JobId) -> Demand:
        return demand_of(self._jobs[job_id], self._view.gpu_types[job_id])

    def _waits_s(self, *, at_most: float) -> float:
        """How long until so many of the others have ended that the job would fit as it is."""
        view, placed = self._view, self._guarded.placed
        capacity = placed.left.copy()
        missing = self._wish.workers - n_fitting(capacity, self._demand)
        for end_s, job_id in sorted(self._ends(placed.allocations)):
            if end_s >= at_most:
                break
            held = placed.allocations[job_id]
            rooms = {slot.node for slot in held if not view.nodes[slot.node].is_closed}
            missing += sum(capacity[node_id].fits(self._demand) for node_id in rooms)
            capacity.give(held, self._demand_of(job_id))
            missing -= sum(capacity[node_id].fits(self._demand) for node_id in rooms)
            if missing <= 0:
                return end_s
        return math.inf

    def _ends(self, allocations: Mapping[JobId, Allocation]) -> Iterable[tuple[float, JobId]]:
        for job_id, held in allocations.items():
            if job_id in self._view.gpu_types:
                left_s = remaining_s(self._jobs[job_id], self._view.now, workers=len(held))
                yield left_s, job_id
