"""Plans as values: what every job should hold, how that differs from the last plan, and which rules
a plan breaks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.core.explain.reasons import Reason
from rota.core.lifecycle.cordons import may_keep_slot
from rota.core.lifecycle.node_refusals import uses_refused_node
from rota.core.model.allocation import Allocation
from rota.core.model.job import Job, JobId
from rota.core.model.node import Node, NodeId, tolerates
from rota.core.placement.capacity import OverbookedError
from rota.core.placement.wish import demand_of
from rota.core.scheduling.view import View


@dataclass(frozen=True, slots=True)
class Plan:
    """What every job should hold. A job that is not in `allocations` should hold nothing."""

    allocations: Mapping[JobId, Allocation]
    gpu_types: Mapping[JobId, str]
    queues: Mapping[JobId, int] = field(default_factory=dict[JobId, int])
    """Feedback queues that changed."""
    waits: Mapping[JobId, Reason] = field(default_factory=dict[JobId, Reason])
    """Why a job does not get what its position in the queue would give it."""
    wake_at_s: float = math.inf
    """When the next round may decide differently although no event happened."""
    violations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocationChange:
    """The change of one job from its planned slots to its new slots."""

    job_id: JobId
    before: Allocation
    after: Allocation


def diff(
    before: Mapping[JobId, Allocation], after: Mapping[JobId, Allocation]
) -> tuple[AllocationChange, ...]:
    """The changes from one set of allocations to another, in a stable order."""
    gone = [
        AllocationChange(job_id, held, ()) for job_id, held in before.items() if job_id not in after
    ]
    changed = [
        AllocationChange(job_id, held, wanted)
        for job_id, wanted in after.items()
        if (held := before.get(job_id, ())) is not wanted and held != wanted
    ]
    return tuple(gone + changed)


def check(plan: Plan, view: View) -> tuple[str, ...]:
    """All rules that the changes of a plan break; empty for a valid plan.

    Unchanged allocations were checked in an earlier round, and `view.free` already excludes them.
    """
    jobs = {job.id: job for job in view.jobs}
    changes = diff(view.planned, plan.allocations)
    capacity = view.free.copy() if changes else view.free
    for change in changes:
        if change.job_id in jobs:
            demand = demand_of(jobs[change.job_id], view.gpu_types.get(change.job_id, ""))
            capacity.give(change.before, demand)
    wrong: list[str] = []
    for change in changes:
        job = jobs.get(change.job_id)
        if job is None:
            wrong.append(f"{change.job_id} is planned but is neither queued nor running")
        elif change.after:
            wrong += _wrong_size(job, change.after)
            wrong += _wrong_place(job, change.after, nodes=view.nodes)
            # The commit drops slots that were planned before the node rejected the job.
            if uses_refused_node(job, [slot for slot in change.after if slot not in change.before]):
                wrong.append(f"{job.id} is planned on a node that rejected it")
            try:
                capacity.take_all(change.after, demand_of(job, plan.gpu_types[job.id]))
            except OverbookedError as error:
                wrong.append(f"{job.id}: {error}")
    return tuple(wrong)


def _wrong_size(job: Job, allocation: Allocation) -> list[str]:
    spec = job.spec
    if spec.min_workers <= len(allocation) <= spec.max_workers:
        return []
    wanted = f"{spec.min_workers}..{spec.max_workers}"
    return [f"{job.id} has {len(allocation)} workers, not {wanted}"]


def _wrong_place(job: Job, allocation: Allocation, *, nodes: Mapping[NodeId, Node]) -> list[str]:
    wrong: list[str] = []
    kinds: set[str] = set()
    for slot in allocation:
        node = nodes.get(slot.node)
        if node is None or not may_keep_slot(job, slot, nodes=nodes):
            wrong.append(f"{job.id} is planned on {slot.node}, which accepts no workers")
            continue
        if not job.spec.node_labels <= node.labels:
            wrong.append(f"{job.id} is planned on {slot.node}, which lacks a required label")
        if not tolerates(job.spec.tolerations, node.taints):
            wrong.append(f"{job.id} is planned on {slot.node}, whose taints it does not tolerate")
        kinds |= {gpu.type for gpu in node.gpus if gpu.index in slot.gpus}
    if len(kinds) > 1 or (job.spec.gpu_types and not kinds <= set(job.spec.gpu_types)):
        wrong.append(f"{job.id} is planned on GPUs of type {', '.join(sorted(kinds))}")
    return wrong
