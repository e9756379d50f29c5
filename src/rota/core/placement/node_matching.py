"""Chooses among equal nodes so that the fewest workers move.

Packing decides which workers share a node of a certain kind. Nodes that are in the same state,
apart from what was just packed on them, are interchangeable. The assignment problem
(`linear_sum_assignment`) finds the exchange under which most workers keep their slots.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from rota.core.model.allocation import Allocation
from rota.core.model.job import JobId
from rota.core.model.node import NodeId
from rota.core.placement.bin_packing import Chunks
from rota.core.placement.cluster_capacity import ClusterCapacity
from rota.core.placement.slot_assignment import SlotRequest, assign_slots_to_all, can_keep

Overlap = Mapping[tuple[NodeId, NodeId], int]
"""(packed node, earlier node) -> the value of using the earlier node instead of the packed one."""

WORTH_OF_A_WORKER = 1_000_000
"""Each kept worker counts this much, and worker 0 counts 1 more: first the fewest moves, then
worker 0 stays."""


@dataclass(frozen=True, slots=True)
class SlotAssignment:
    """A slot request and the slots that packing found for it."""

    slot_request: SlotRequest
    chunks: Chunks
    allocation: Allocation
    may_rebind: bool
    """Whether equal nodes may be used instead. False for a job that stays on its nodes, for a job
    that some nodes rejected, and for shares, which may not fit another node's GPUs."""


def match_nodes(
    capacity: ClusterCapacity,
    assignments: Sequence[SlotAssignment],
    *,
    crowded: Collection[NodeId] = (),
) -> dict[JobId, Allocation]:
    """The allocations, with nodes exchanged where that saves moves. `crowded` nodes hold a job that
    spans nodes and is not among the assignments."""
    bound = {assignment.slot_request.job_id: assignment.allocation for assignment in assignments}
    loose = [assignment for assignment in assignments if assignment.may_rebind]
    if not any(assignment.slot_request.before for assignment in loose):
        return bound
    for assignment in loose:
        capacity.give(assignment.allocation, assignment.slot_request.demand)
    exchange = _exchange(capacity, _overlap(capacity, loose), crowded=crowded)
    slot_requests = [
        (
            assignment.slot_request,
            [(exchange.get(node, node), count) for node, count in assignment.chunks],
        )
        for assignment in loose
    ]
    for (slot_request, _), allocation in zip(
        slot_requests, assign_slots_to_all(capacity, slot_requests), strict=True
    ):
        bound[slot_request.job_id] = allocation
    return bound


def _overlap(capacity: ClusterCapacity, loose: Sequence[SlotAssignment]) -> Overlap:
    overlap: dict[tuple[NodeId, NodeId], int] = defaultdict(int)
    for assignment in loose:
        slot_request, chunks = assignment.slot_request, assignment.chunks
        kept = [
            can_keep(capacity, slot, demand=slot_request.demand)
            and not capacity[slot.node].node.is_closed
            for slot in slot_request.before[: sum(count for _, count in chunks)]
        ]
        stayers = Counter(
            s.node for s, keeps in zip(slot_request.before, kept, strict=False) if keeps
        )
        for packed_on, now in chunks:
            for was_on, before in stayers.items():
                overlap[packed_on, was_on] += min(before, now) * WORTH_OF_A_WORKER
            if kept and kept[0]:
                overlap[packed_on, slot_request.before[0].node] += 1
    return overlap


def _exchange(
    capacity: ClusterCapacity, overlap: Overlap, *, crowded: Collection[NodeId]
) -> dict[NodeId, NodeId]:
    """For each node that packing used, the equal node to use instead."""
    alike: dict[object, list[NodeId]] = defaultdict(list)
    for node_id in sorted({node_id for pair in overlap for node_id in pair}):
        alike[capacity[node_id].shape, node_id in crowded].append(node_id)
    place = {node: (kind, i) for kind, group in alike.items() for i, node in enumerate(group)}
    scores = {kind: np.zeros((len(group), len(group))) for kind, group in alike.items()}
    for (packed_on, was_on), worth in overlap.items():
        (kind, row), (other_kind, column) = place[packed_on], place[was_on]
        if kind == other_kind:
            scores[kind][row, column] = worth
    exchange: dict[NodeId, NodeId] = {}
    for kind, group in alike.items():
        if len(group) == 1:
            exchange[group[0]] = group[0]
            continue
        # The full name makes SciPy load this module on first use; a single node never needs it.
        rows, columns = scipy.optimize.linear_sum_assignment(scores[kind], maximize=True)
        exchange.update({group[row]: group[to] for row, to in zip(rows, columns, strict=True)})
    return exchange
