"""Plans as values: what every job should hold, how that differs from the last plan, and which rules
a plan breaks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rota.core.explain.reasons import Reason
from rota.core.lifecycle.cordons import may_keep_slot
from rota.core.model.allocation import Allocation, n_nodes
from rota.core.model.job import Job, JobId
from rota.core.placement.capacity import OverbookedError
from rota.core.placement.wish import Demand, demand_of
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
    changes = diff(view.planned, plan.allocations)
    capacity = view.free.copy()
    for change in changes:
        if change.job_id in view.jobs:
            capacity.give(change.before, demand_of(view.jobs[change.job_id], ""))
    wrong: list[str] = []
    for change in changes:
        job = view.jobs.get(change.job_id)
        if job is None:
            wrong.append(f"{change.job_id} is planned but is neither queued nor running")
        elif change.after:
            demand = demand_of(job, plan.gpu_types[job.id])
            wrong += (
                f"{job.id} {rule}" for rule in _broken_rules(job, change, demand=demand, view=view)
            )
            try:
                capacity.take(change.after, demand)
            except OverbookedError as error:
                wrong.append(f"{job.id}: {error}")
    return tuple(wrong)


def _broken_rules(
    job: Job, change: AllocationChange, *, demand: Demand, view: View
) -> Iterator[str]:
    spec, units = job.spec, job.spec.units_in(change.after)
    if not spec.min_workers <= units <= spec.max_workers:
        yield f"has {units} units, not {spec.min_workers}..{spec.max_workers}"
    nodes = n_nodes(change.after)
    if 0 < spec.max_nodes < nodes:
        yield f"is planned on {nodes} nodes, not on at most {spec.max_nodes}"
    if spec.merges_units and nodes < len(change.after):
        yield "is planned with several workers on one node"
    if demand.gpu_type and spec.gpu_types and demand.gpu_type not in spec.gpu_types:
        yield f"is planned on GPUs of type {demand.gpu_type}"
    for slot in change.after:
        if not may_keep_slot(job, slot, nodes=view.nodes):
            yield f"is planned on {slot.node}, which accepts no workers"
        # A job may keep slots that it was given before the node changed or rejected it.
        elif slot not in change.before and not view.free[slot.node].admits(demand):
            yield f"is planned on {slot.node}, which does not admit it"
