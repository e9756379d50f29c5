"""Frees space for a job that waits only because the free GPUs are scattered.

The round calls this module at most once, for the first job in the queue that found no place
although enough GPUs are free in total. It may move jobs that run on one node, have passed their
minimum run time, and do not outrank the waiting job. It moves the fewest and cheapest jobs that
make space on some node. If no node can be freed this way and the jobs are few, it packs all of them
again. A job that the waiting job outranks may be moved at any time and at any cost, and is
preempted if no other node fits it.

A move pays if the moved jobs lose fewer GPU-seconds (see `loss_gpu_s`) than the waiting job gains.
The gain is the job's number of GPUs times its expected wait, or times its own remaining time if
that is shorter. The expected wait ends when enough other jobs are expected to have finished.

A job that has waited for `starvation_after_s` gets its space at any cost: other jobs yield to it,
first those that are last in the queue.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from rota.core.estimation.disruption_cost import loss_gpu_s
from rota.core.estimation.remaining_time import remaining_s
from rota.core.model.allocation import TOLERANCE, Allocation, n_gpus, n_nodes
from rota.core.model.job import Job, JobId, Queued, Running
from rota.core.model.node import NodeId
from rota.core.model.rank import rank_of
from rota.core.placement.capacity import ClusterCapacity, NodeCapacity
from rota.core.placement.placer import Placement, place
from rota.core.placement.slots import assign_slots, choose_nodes, n_fitting
from rota.core.placement.wish import Demand, Wish, demand_of
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
        each = wish.demand.n_gpus(card_bytes)
        free = placed.left.free_gpus(wish.demand.gpu_type)
        if each and wish.job.id not in placed.allocations and wish.units * each <= free + TOLERANCE:
            return _Search(shares, placed, wish).find()
    return None


def next_starvation_s(jobs: Iterable[Job], view: View) -> float:
    """When the first of these waiting jobs has waited too long."""
    starts = (_starves_at_s(job, view) for job in jobs)
    return min((start_s for start_s in starts if start_s > view.now), default=math.inf)


def _starves_at_s(job: Job, view: View) -> float:
    waits_since_s = job.phase.since_s if isinstance(job.phase, Queued) else math.inf
    return waits_since_s + view.rules.starvation_after_s


@dataclass(frozen=True, slots=True)
class _OpenedNode:
    """One node with space for one more unit, and the moves that this takes."""

    loss_gpu_s: float
    capacity: ClusterCapacity
    moves: dict[JobId, Allocation]
    """The new allocations of the jobs that make space; empty for a job that is preempted."""


class _Search:
    """Searches for space for one wish."""

    def __init__(self, shares: Shares, placed: Placement, wish: Wish) -> None:
        self._view = shares.view
        self._placed = placed
        self._wish = wish
        self._jobs = {job.id: job for job in shares.view.jobs}
        self._movable = {each.job.id: each for each in self._find_movable()}
        """The jobs that may be moved, with the wish to hold what they hold."""

    def find(self) -> Placement | None:
        if _starves_at_s(self._wish.job, self._view) <= self._view.now:
            return self._open_nodes() or self._preempt()
        if not self._view.rules.is_guarded:
            return None
        found = self._open_nodes() or self._repack()
        return found if found and self._is_worth_it(found) else None

    def _open_nodes(self) -> Placement | None:
        """Free space on one node after another, until all units of the wish fit."""
        wish, capacity = self._wish, self._placed.left
        allocations = dict(self._placed.allocations)
        movable = dict(self._movable)
        for _ in range(wish.units - n_fitting(capacity, wish.demand)):
            opened = self._cheapest(capacity, movable)
            if opened is None and any(map(self._outranks, movable.values())):
                opened = self._cheapest(capacity, movable, is_forced=True)
            if opened is None:
                return None
            capacity = opened.capacity
            for job_id, where in opened.moves.items():
                allocations[job_id] = where
                del movable[job_id]
        kept = {job_id: held for job_id, held in allocations.items() if held}
        found = place([wish], capacity=capacity, planned=kept)
        return found if wish.job.id in found.allocations else None

    def _repack(self) -> Placement | None:
        """Pack all movable jobs again, if they are few. No job may lose its place."""
        if len(self._movable) > REPACKED_JOBS_MAX:
            return None
        moved = (replace(each, leaves=True) for each in self._movable.values())
        found = self._place_with(by_difficulty(moved, self._view))
        return found if found and not found.short else None

    def _preempt(self) -> Placement | None:
        """Preempt movable jobs, first those that are last in the queue."""
        yielding = (replace(each, units=0, yields=True) for each in self._movable.values())
        return self._place_with(sorted(yielding, key=lambda each: each.rank))

    def _place_with(self, others: list[Wish]) -> Placement | None:
        before = self._placed
        found = place([self._wish, *others], capacity=before.left, planned=before.allocations)
        return found if self._wish.job.id in found.allocations else None

    # -- what a move costs and gains ------------------------------------------------------------

    def _is_worth_it(self, found: Placement) -> bool:
        """Whether the moves pay, or the waiting job outranks all jobs that change."""
        after = found.allocations
        changed = [each for each in self._movable.values() if after.get(each.job.id) != each.held]
        if all(map(self._outranks, changed)):
            return True
        lost = sum(map(self._loss_gpu_s, changed))
        own_s = remaining_s(self._wish.job, self._view.now, workers=self._wish.units)
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
            (remaining_s(self._jobs[job_id], view.now, workers=len(held)), job_id)
            for job_id, held in placed.allocations.items()
            if job_id in view.gpu_types
        )
        for end_s, job_id in sorted(ends):
            if end_s >= at_most:
                break
            held = placed.allocations[job_id]
            nodes = {slot.node for slot in held if not view.nodes[slot.node].is_closed}
            missing += sum(capacity[node_id].fits(demand) for node_id in nodes)
            capacity.give(held, demand_of(self._jobs[job_id], view.gpu_types[job_id]))
            missing -= sum(capacity[node_id].fits(demand) for node_id in nodes)
            if missing <= 0:
                return end_s
        return math.inf

    # -- the jobs that move ---------------------------------------------------------------------

    def _outranks(self, other: Wish) -> bool:
        return self._wish.rank.outranks(other.rank)

    def _find_movable(self) -> Iterator[Wish]:
        view = self._view
        for job_id, held in self._placed.allocations.items():
            job = self._jobs[job_id]
            rank, phase = rank_of(job), job.phase
            if (
                isinstance(phase, Running)
                and not phase.joining
                and held is view.planned.get(job_id)
                and n_nodes(held) == 1
                and not view.nodes[held[0].node].is_closed
                and not rank.outranks(self._wish.rank)
                and (protected_until_s(job, view) <= view.now or self._wish.rank.outranks(rank))
            ):
                demand = demand_of(job, view.gpu_types[job_id])
                yield Wish(job, rank, len(held), demand, held, demand)

    def _cheapest(
        self, capacity: ClusterCapacity, movable: dict[JobId, Wish], *, is_forced: bool = False
    ) -> _OpenedNode | None:
        """The node that is opened with the least loss."""
        demand = self._wish.demand
        occupants: dict[NodeId, list[Wish]] = defaultdict(list)
        for each in movable.values():
            occupants[each.held[0].node].append(each)
        best: _OpenedNode | None = None
        n_tried = 0
        for room in capacity.by_size(Demand(gpu_type=demand.gpu_type)):
            node = room.node
            if node.id not in occupants or not demand.labels <= node.labels:
                continue
            if node.id in demand.excluded_nodes:
                continue
            for order in self._orders(occupants[node.id]):
                opened = self._opened(capacity, room, occupants=order, is_forced=is_forced)
                if opened and (best is None or opened.loss_gpu_s < best.loss_gpu_s):
                    best = opened
            n_tried += 1
            if n_tried == NODES_MAX:
                break
        return best

    def _orders(self, occupants: list[Wish]) -> Iterator[list[Wish]]:
        """The lowest tiers and cheapest jobs first; then the largest first, because small jobs may
        take the only space for it."""
        by_id = sorted(occupants, key=lambda each: each.job.id)
        by_loss = sorted(by_id, key=self._loss_gpu_s)
        cheapest_first = sorted(by_loss, key=lambda each: each.rank.tier, reverse=True)
        largest_first = sorted(cheapest_first, key=lambda each: -n_gpus(each.held))
        yield cheapest_first
        if largest_first != cheapest_first:
            yield largest_first

    def _opened(
        self,
        capacity: ClusterCapacity,
        room: NodeCapacity,
        *,
        occupants: list[Wish],
        is_forced: bool,
    ) -> _OpenedNode | None:
        """Move jobs away from the node one by one, until one more unit fits. With `is_forced`,
        preempt an outranked job that fits nowhere else."""
        node_id, demand = room.node.id, self._wish.demand
        enough = room.fits(demand) + 1
        trial = capacity.copy()
        moves: dict[JobId, Allocation] = {}
        lost = 0.0
        for each in occupants:
            chunks = choose_nodes(trial, each.demand, units=each.units, avoid=[node_id])
            if chunks is not None and len(chunks) == 1:
                moves[each.job.id] = assign_slots(trial, each.demand, chunks=chunks)
            elif is_forced and self._outranks(each):
                moves[each.job.id] = ()
            else:
                continue
            trial.give(each.held, each.demand)
            lost += self._loss_gpu_s(each)
            if trial[node_id].fits(demand) >= enough:
                return _OpenedNode(lost, trial, moves)
        return None
