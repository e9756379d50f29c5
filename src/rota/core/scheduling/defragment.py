"""Frees space for a job that waits only because the free GPUs are scattered.

The round calls this module at most once, after the guard, for the first job in the queue that found
no place although enough GPUs are free in total. It may move jobs that run on one node, have passed
their minimum run time, and do not have a higher priority. It moves the fewest and cheapest jobs
that make space on some node. If no node can be freed this way and the jobs are few, it packs all of
them again. A job with a lower priority may be moved at any time and at any cost, and is preempted
if no other node fits it.

A move pays if the moved jobs lose fewer GPU-seconds (see `disruption_cost.loss_gpu_s`) than the
waiting job gains. The gain is the job's number of GPUs times its expected wait, or times its own
remaining time if that is shorter. The expected wait ends when enough other jobs are expected to
have finished.

A job that has waited for `starvation_after_s` gets its space at any cost: the jobs behind it in the
queue are placed after it, and those that no longer fit wait.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from rota.core.estimation.remaining_time import remaining_s
from rota.core.model.allocation import Allocation, n_gpus, n_nodes
from rota.core.model.job import Job, JobId, Queued, Running
from rota.core.model.node import NodeId
from rota.core.placement.bin_packing import choose_nodes, n_fitting
from rota.core.placement.cluster_capacity import ClusterCapacity
from rota.core.placement.node_capacity import NodeCapacity
from rota.core.placement.placer import PlacementRequest, PlacementResult, place
from rota.core.placement.slot_assignment import SlotRequest, assign_slots
from rota.core.placement.worker_demand import Demand, demand_of
from rota.core.scheduling.disruption_cost import loss_gpu_s, protected_until_s
from rota.core.scheduling.policy_api import TOLERANCE
from rota.core.scheduling.preemption import Guarded
from rota.core.scheduling.view import View

NODES_MAX = 32
"""How many nodes to try for each worker without a place, the emptiest first."""
REPACKED_JOBS_MAX = 100


def defragment(view: View, guarded: Guarded, *, short: Mapping[JobId, int]) -> Guarded | None:
    """The plan with the waiting job placed; None if no job needs space or the moves do not pay."""
    request = next(_fragmented_requests(view, guarded, short=short), None)
    if request is None:
        return None
    search = _Search(view, guarded, request)
    placed = search.open_nodes() or search.repack_all()
    if is_starving(request.job, view):
        placed = placed or search.place_first()
    elif placed and not (view.rules.is_guarded and search.is_worth_it(placed)):
        placed = None
    if placed is None:
        return None
    waits = {job_id: why for job_id, why in guarded.waits.items() if job_id != request.job.id}
    return replace(guarded, placed=placed, waits=waits)


def is_starving(job: Job, view: View) -> bool:
    phase = job.phase
    waited_s = view.now - phase.since_s if isinstance(phase, Queued) else 0.0
    return waited_s >= view.rules.starvation_after_s


def _fragmented_requests(
    view: View, guarded: Guarded, *, short: Mapping[JobId, int]
) -> Iterator[PlacementRequest]:
    left = guarded.placed.left
    for request in guarded.requests:
        if request.job.id not in short or request.job.id in guarded.allocations:
            continue
        demand = request.demand
        each = float(demand.gpus)
        if demand.share:
            card_bytes = view.empty.card_bytes[demand.gpu_type]
            each = demand.share_bytes(card_bytes) / card_bytes
        if each and request.workers * each <= left.free_gpus(demand.gpu_type) + TOLERANCE:
            yield request


@dataclass(frozen=True, slots=True)
class _OpenedNode:
    """One node with space for one more worker, and the moves that this takes."""

    loss_gpu_s: float
    capacity: ClusterCapacity
    moves: dict[JobId, Allocation]
    """The new allocations of the jobs that make space; empty for a job that is preempted."""


class _Search:
    """Searches for space for one placement request."""

    def __init__(self, view: View, guarded: Guarded, request: PlacementRequest) -> None:
        self._view = view
        self._guarded = guarded
        self._request = request
        self._demand = request.demand
        self._jobs = {job.id: job for job in view.jobs}
        self._movable = {job.id: job for job in self._find_movable()}

    def open_nodes(self) -> PlacementResult | None:
        """Free space on one node after another, until all workers of the job fit."""
        placed, request, demand = self._guarded.placed, self._request, self._demand
        capacity, allocations = placed.left, dict(placed.allocations)
        movable = dict(self._movable)
        n_missing = request.workers - n_fitting(capacity, demand)
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
        chunks = choose_nodes(capacity, demand, workers=request.workers)
        if chunks is None:
            return None
        capacity = capacity.copy()
        allocations[request.job.id] = assign_slots(
            capacity, SlotRequest(request.job.id, demand), chunks=chunks
        )
        short = {job_id: fits for job_id, fits in placed.short.items() if job_id != request.job.id}
        return PlacementResult(allocations, short, capacity)

    def repack_all(self) -> PlacementResult | None:
        """Pack all movable jobs again, if they are few. No job may get fewer workers."""
        if len(self._movable) > REPACKED_JOBS_MAX:
            return None
        before = self._guarded.allocations
        placed = place(self._view, self._guarded.requests, movable=self._movable)
        if self._request.job.id not in placed.allocations:
            return None
        after = placed.allocations
        if any(len(after.get(job_id, ())) < len(held) for job_id, held in before.items()):
            return None
        return placed

    def place_first(self) -> PlacementResult | None:
        """Place the waiting job first, then all others in their order."""
        others = [
            request for request in self._guarded.requests if request.job.id != self._request.job.id
        ]
        requests = [self._request, *others]
        placed = place(self._view, requests, movable=self._movable, in_order=True)
        return placed if self._request.job.id in placed.allocations else None

    def is_worth_it(self, placed: PlacementResult) -> bool:
        """Whether the moves pay, or only change jobs with a lower priority."""
        after = placed.allocations
        changed = [
            self._jobs[job_id]
            for job_id, held in self._guarded.allocations.items()
            if after.get(job_id) is not held and after.get(job_id) != held
        ]
        return all(map(self._outranks, changed)) or self._pays(placed, changed)

    def _outranks(self, job: Job) -> bool:
        return job.spec.priority < self._request.job.spec.priority

    def _pays(self, placed: PlacementResult, changed: Iterable[Job]) -> bool:
        after = placed.allocations
        lost = sum(loss_gpu_s(job, self._view) for job in changed)
        own_s = remaining_s(self._request.job, self._view.now, workers=self._request.workers)
        return lost == 0 or lost < n_gpus(after[self._request.job.id]) * min(
            own_s, self._expected_wait_s(at_most=own_s)
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
                and job.spec.priority <= self._request.job.spec.priority
                and (protected_until_s(job, view) <= view.now or self._outranks(job))
            ):
                yield job

    def _cheapest(
        self, capacity: ClusterCapacity, movable: Mapping[JobId, Job], *, is_forced: bool = False
    ) -> _OpenedNode | None:
        occupants: dict[NodeId, list[Job]] = defaultdict(list)
        for job in movable.values():
            occupants[job.allocation[0].node].append(job)
        best: _OpenedNode | None = None
        n_tried = 0
        for node_capacity in capacity.by_size(Demand(gpu_type=self._demand.gpu_type)):
            node = node_capacity.node
            if node.id not in occupants or not self._demand.labels <= node.labels:
                continue
            if node.id in self._demand.excluded_nodes:
                continue
            for order in self._orders(occupants[node.id]):
                opened = self._opened(capacity, node_capacity, occupants=order, is_forced=is_forced)
                if opened and (best is None or opened.loss_gpu_s < best.loss_gpu_s):
                    best = opened
            n_tried += 1
            if n_tried == NODES_MAX:
                break
        return best

    def _orders(self, occupants: list[Job]) -> Iterator[list[Job]]:
        """The cheapest jobs first; then the largest first, because small jobs may take the only
        space for it."""
        loss = {job.id: loss_gpu_s(job, self._view) for job in occupants}
        cheapest_first = sorted(
            occupants, key=lambda job: (job.spec.priority, loss[job.id], job.id)
        )
        largest_first = sorted(cheapest_first, key=lambda job: -n_gpus(job.allocation))
        yield cheapest_first
        if largest_first != cheapest_first:
            yield largest_first

    def _opened(
        self,
        capacity: ClusterCapacity,
        node_capacity: NodeCapacity,
        *,
        occupants: list[Job],
        is_forced: bool,
    ) -> _OpenedNode | None:
        """Move jobs away from the node one by one, until one more worker fits. With `is_forced`,
        preempt a job with a lower priority that fits nowhere else."""
        node_id, enough = node_capacity.node.id, node_capacity.fits(self._demand) + 1
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
                return _OpenedNode(lost, trial, moves)
        return None

    def _move_away(self, capacity: ClusterCapacity, job: Job) -> Allocation | None:
        """Slots for the whole job on one other node, if it fits. The job's current slots stay
        taken."""
        held, demand = self._guarded.allocations[job.id], self._demand_of(job.id)
        chunks = choose_nodes(capacity, demand, workers=len(held), avoid=[held[0].node])
        if chunks is None or len(chunks) > 1:
            return None
        return assign_slots(capacity, SlotRequest(job.id, demand), chunks=chunks)

    def _demand_of(self, job_id: JobId) -> Demand:
        return demand_of(self._jobs[job_id], self._view.gpu_types[job_id])

    def _expected_wait_s(self, *, at_most: float) -> float:
        """How long until enough other jobs have finished that the job fits without moves."""
        view, placed = self._view, self._guarded.placed
        capacity = placed.left.copy()
        missing = self._request.workers - n_fitting(capacity, self._demand)
        for end_s, job_id in sorted(self._ends(placed.allocations)):
            if end_s >= at_most:
                break
            held = placed.allocations[job_id]
            nodes = {slot.node for slot in held if not view.nodes[slot.node].is_closed}
            missing += sum(capacity[node_id].fits(self._demand) for node_id in nodes)
            capacity.give(held, self._demand_of(job_id))
            missing -= sum(capacity[node_id].fits(self._demand) for node_id in nodes)
            if missing <= 0:
                return end_s
        return math.inf

    def _ends(self, allocations: Mapping[JobId, Allocation]) -> Iterable[tuple[float, JobId]]:
        for job_id, held in allocations.items():
            if job_id in self._view.gpu_types:
                left_s = remaining_s(self._jobs[job_id], self._view.now, workers=len(held))
                yield left_s, job_id
