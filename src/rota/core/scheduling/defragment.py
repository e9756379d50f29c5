"""Frees space for a job that waits only because the free GPUs are scattered.

The round calls this module at most once, for the first job in the queue that found no place
although enough GPUs are free in total. It may move jobs that run on one node, have passed their
minimum run time, and do not outrank the waiting job. It moves the cheapest jobs that make space on
some node. If no node can be freed this way and the jobs are few, all of them are placed again. A
job that the waiting job outranks may be moved at any time and at any cost, and is preempted if no
other node fits it.

A move pays if the moved jobs lose fewer GPU-seconds (see `loss_gpu_s`) than the waiting job gains.
The gain is the job's number of GPUs times its expected wait, or times its own remaining time if
that is shorter. The expected wait ends when enough other jobs are expected to have finished.

A job that has waited for `starvation_after_s` gets its space at any cost: jobs that fit on no other
node are preempted for it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter

from rota.core.estimation.disruption_cost import loss_gpu_s
from rota.core.estimation.remaining_time import remaining_s
from rota.core.model.allocation import TOLERANCE, n_gpus, n_nodes
from rota.core.model.job import Job, Queued, Running
from rota.core.model.node import NodeId
from rota.core.model.rank import rank_of
from rota.core.placement.capacity import ClusterCapacity
from rota.core.placement.placer import Placement, place
from rota.core.placement.slots import assign_slots, choose_nodes, n_fitting
from rota.core.placement.wish import Wish, demand_of, unit_slots
from rota.core.scheduling.divide import Shares
from rota.core.scheduling.preemption import by_difficulty, protected_until_s
from rota.core.scheduling.view import View

NODES_MAX = 32
"""How many nodes to try for each unit without a place, the emptiest first."""
REPACKED_JOBS_MAX = 100


def defragment(shares: Shares, short: Iterable[Wish], *, placed: Placement) -> Placement | None:
    """The placement with the first of the `short` wishes fulfilled for which enough GPUs are free;
    None if there is none or the moves do not pay."""
    card_bytes = shares.view.empty.card_bytes
    for wish in short:
        needed = wish.units * wish.demand.n_gpus(card_bytes)
        free = placed.left.free_gpus(wish.demand.gpu_type)
        if needed and wish.job.id not in placed.allocations and needed <= free + TOLERANCE:
            return _Search(shares.view, placed, wish).find()
    return None


def next_starvation_s(jobs: Iterable[Job], view: View) -> float:
    """When the first of these waiting jobs has waited too long."""
    starts = (_starves_at_s(job, view) for job in jobs)
    return min((start_s for start_s in starts if start_s > view.now), default=math.inf)


def _starves_at_s(job: Job, view: View) -> float:
    waits_since_s = job.phase.since_s if isinstance(job.phase, Queued) else math.inf
    return waits_since_s + view.rules.starvation_after_s


_Opened = tuple[tuple[int, float], list[Wish], ClusterCapacity]
"""A node with space for one more unit: the number of preempted jobs and the loss of all moved jobs,
these jobs, and the capacity after the moves."""


class _Search:
    """Searches for space for one wish."""

    def __init__(self, view: View, placed: Placement, wish: Wish) -> None:
        self._view = view
        self._placed = placed
        self._wish = wish.as_one_unit
        self._size = wish.units
        self._is_starving = _starves_at_s(wish.job, view) <= view.now
        self._movable = sorted(self._find_movable(), key=self._loss_gpu_s)
        self._movable.sort(key=lambda each: each.rank.tier, reverse=True)
        """The lowest tiers and cheapest jobs first."""
        self._occupants: dict[NodeId, list[Wish]] = defaultdict(list)
        for each in self._movable:
            self._occupants[each.held[0].node].append(each)

    def find(self) -> Placement | None:
        if not self._is_starving and not self._view.rules.is_guarded:
            return None
        moved = self._find_moves()
        if moved is None and len(self._movable) <= REPACKED_JOBS_MAX:
            moved = self._movable
        if moved is None:
            return None
        before, wishes = self._placed, [self._wish, *by_difficulty(moved, self._view)]
        found = place(wishes, capacity=before.left, planned=before.allocations)
        short = [each for each in wishes if each.job.id in found.short]
        return found if all(map(self._yields, short)) and self._is_worth_it(found) else None

    # -- the jobs that move ---------------------------------------------------------------------

    def _find_movable(self) -> Iterator[Wish]:
        """The jobs that may be moved, with the wish to hold as much on another node."""
        view, rank = self._view, self._wish.rank
        for job_id, held in self._placed.allocations.items():
            job = view.jobs[job_id]
            own = rank_of(job)
            if (
                isinstance(job.phase, Running)
                and not job.phase.joining
                and held is view.planned.get(job_id)
                and n_nodes(held) == 1
                and not any(view.nodes[each.node].is_closed_for(each.gpus) for each in held)
                and not own.outranks(rank)
                and (protected_until_s(job, view) <= view.now or rank.outranks(own))
            ):
                demand = demand_of(job, view.gpu_types[job_id])
                slots = unit_slots(job, held)
                yield Wish(job, own, len(slots), demand, slots, leaves=True)

    def _yields(self, other: Wish) -> bool:
        """Whether the job is preempted if no other node fits it."""
        is_other = other is not self._wish
        return is_other and (self._is_starving or self._wish.rank.outranks(other.rank))

    def _find_moves(self) -> list[Wish] | None:
        """The jobs to move so that all units of the wish fit: on one node after another, the
        cheapest jobs that make space for one more unit. None if there are no such jobs."""
        demand, capacity = self._wish.demand, self._placed.left.copy()
        rooms = capacity.with_free(demand.gpu_type, demand.gpus)
        fitting = [(room.node.id, fits) for room in rooms if (fits := room.fits(demand))]
        assign_slots(capacity, demand, chunks=fitting)
        moved: list[Wish] = []
        for _ in range(self._wish.units - sum(fits for _, fits in fitting)):
            nodes = self._emptiest(capacity)
            opened = [self._open(capacity.copy(), node_id) for node_id in nodes]
            found = [each for each in opened if each is not None]
            if not found:
                return None
            _, jobs, capacity = min(found, key=itemgetter(0))
            moved += jobs
            for each in jobs:
                self._occupants[each.held[0].node].remove(each)
        return moved

    def _emptiest(self, capacity: ClusterCapacity) -> Iterable[NodeId]:
        """The nodes to try: those with movable jobs that the waiting job may use."""
        demand = self._wish.demand
        by_order = capacity.with_free(demand.gpu_type, 0)
        emptiest_first = sorted(by_order, key=lambda room: -room.n_free(demand.gpu_type))
        usable = (room.node.id for room in emptiest_first if room.admits(demand))
        occupied = (node_id for node_id in usable if self._occupants.get(node_id))
        return islice(occupied, None if self._is_starving else NODES_MAX)

    def _open(self, trial: ClusterCapacity, node_id: NodeId) -> _Opened | None:
        """Move the cheapest jobs away from the node, so that one more unit fits."""
        demand, moved = self._wish.demand, list[Wish]()
        for each in self._occupants[node_id]:
            if not trial[node_id].fits(demand):
                trial.give(each.held, each.demand)
                moved.append(each)
        if not trial[node_id].fits(demand):
            return None
        for each in reversed(moved):
            trial.take(each.held, each.demand)
            if trial[node_id].fits(demand):
                moved.remove(each)
            else:
                trial.give(each.held, each.demand)
        assign_slots(trial, demand, chunks=[(node_id, 1)])
        homeless = [each for each in by_difficulty(moved, self._view) if not _move(each, trial)]
        if not all(map(self._yields, homeless)):
            return None
        return (len(homeless), sum(map(self._loss_gpu_s, moved))), moved, trial

    # -- what a move costs and gains ------------------------------------------------------------

    def _is_worth_it(self, found: Placement) -> bool:
        """Whether the moves pay, or the waiting job takes its space at any cost."""
        after = found.allocations
        before = self._placed.allocations
        movable = ((each, each.job.id) for each in self._movable)
        changed = [each for each, job_id in movable if after.get(job_id) != before[job_id]]
        if all(map(self._yields, changed)):
            return True
        lost = sum(map(self._loss_gpu_s, changed))
        own_s = remaining_s(self._wish.job, self._view.now, workers=self._size)
        gained_s = min(own_s, self._expected_wait_s(at_most=own_s))
        return lost == 0 or lost < n_gpus(after[self._wish.job.id]) * gained_s

    def _loss_gpu_s(self, moved: Wish) -> float:
        return loss_gpu_s(moved.job, self._view.rules.restart_cost_s, now=self._view.now)

    def _expected_wait_s(self, *, at_most: float) -> float:
        """How long until enough other jobs have finished that the job fits without moves."""
        view, placed, demand = self._view, self._placed, self._wish.demand
        capacity = placed.left.copy()
        missing = self._wish.units - n_fitting(capacity, demand)
        ends = (
            (remaining_s(job, view.now, workers=job.spec.units_in(held)), job_id)
            for job_id, held in placed.allocations.items()
            if job_id in view.gpu_types and (job := view.jobs[job_id])
        )
        for end_s, job_id in sorted(ends):
            if end_s >= at_most:
                break
            held = placed.allocations[job_id]
            nodes = {slot.node for slot in held if not view.nodes[slot.node].is_closed}
            missing += sum(capacity[node_id].fits(demand) for node_id in nodes)
            capacity.give(held, demand_of(view.jobs[job_id], view.gpu_types[job_id]))
            missing -= sum(capacity[node_id].fits(demand) for node_id in nodes)
            if missing <= 0:
                return end_s
        return math.inf


def _move(wish: Wish, trial: ClusterCapacity) -> bool:
    """Move the job to another node, if one fits it."""
    chunks = choose_nodes(trial, wish.demand, units=wish.units)
    if chunks is None or len(chunks) > 1:
        return False
    assign_slots(trial, wish.demand, chunks=chunks)
    return True
