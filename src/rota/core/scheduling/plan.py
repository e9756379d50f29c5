"""Plans as values: what every job should hold, how that differs from now, and what is wrong
with it if anything is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rota.core.cordons import keeps
from rota.core.demand import demand_of
from rota.core.model import Allocation, Job, JobId, Node, NodeId
from rota.core.reasons import Reason
from rota.core.refusals import is_barred
from rota.core.room import OverbookedError
from rota.core.taints import tolerates
from rota.core.view import View


@dataclass(frozen=True, slots=True)
class Plan:
    """Who should hold what. A job that is not in `allocations` should hold nothing."""

    allocations: Mapping[JobId, Allocation]
    gpu_types: Mapping[JobId, str]
    queues: Mapping[JobId, int] = field(default_factory=dict[JobId, int])
    """Feedback queues that changed."""
    waits: Mapping[JobId, Reason] = field(default_factory=dict[JobId, Reason])
    """Why a job does not get what its turn would give it, where that needs a word."""
    wake_at_s: float = math.inf
    """When this plan may look different although nothing happened."""
    violations: tuple[str, ...] = ()


class Kind(StrEnum):
    START = "start"
    STOP = "stop"
    GROW = "grow"
    SHRINK = "shrink"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Change:
    """One job's step from what it was planned to hold to what it should hold now."""

    job_id: JobId
    before: Allocation
    after: Allocation

    @property
    def kind(self) -> Kind:
        if not self.before:
            return Kind.START
        if not self.after:
            return Kind.STOP
        if len(self.after) == len(self.before):
            return Kind.MOVE
        return Kind.GROW if len(self.after) > len(self.before) else Kind.SHRINK


def diff(
    before: Mapping[JobId, Allocation], after: Mapping[JobId, Allocation]
) -> tuple[Change, ...]:
    """The changes that lead from one set of allocations to another, in a stable order."""
    gone = [Change(job_id, held, ()) for job_id, held in before.items() if job_id not in after]
    changed = [
        Change(job_id, held, wanted)
        for job_id, wanted in after.items()
        if (held := before.get(job_id, ())) is not wanted and held != wanted
    ]
    return tuple(gone + changed)


def apply_changes(
    before: Mapping[JobId, Allocation], changes: Iterable[Change]
) -> dict[JobId, Allocation]:
    after = dict(before)
    for change in changes:
        if change.after:
            after[change.job_id] = change.after
        else:
            after.pop(change.job_id, None)
    return after


def check(plan: Plan, view: View) -> tuple[str, ...]:
    """Everything that is wrong with the changes a plan makes; an empty tuple is a good plan.

    What the plan leaves as it was has been checked before, and is what `view.free` leaves out.
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
            wrong.append(f"{change.job_id} is planned but does not wait or run")
        elif change.after:
            wrong += _wrong_size(job, change.after)
            wrong += _wrong_place(job, change.after, nodes=view.nodes)
            # Where it was sent before it was refused, whoever takes the plan over drops it.
            if is_barred(job, [slot for slot in change.after if slot not in change.before]):
                wrong.append(f"{job.id} is planned on a node that would not have it")
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
        if node is None or not keeps(job, slot, nodes=nodes):
            wrong.append(f"{job.id} is planned on {slot.node}, which takes no work")
            continue
        if not job.spec.node_labels <= node.labels:
            wrong.append(f"{job.id} is planned on {slot.node}, which lacks a wanted label")
        if not tolerates(job.spec.tolerations, node.taints):
            wrong.append(f"{job.id} is planned on {slot.node}, which is kept for others")
        kinds |= {gpu.type for gpu in node.gpus if gpu.index in slot.gpus}
    if len(kinds) > 1 or (job.spec.gpu_types and not kinds <= set(job.spec.gpu_types)):
        wrong.append(f"{job.id} is planned on GPUs of type {', '.join(sorted(kinds))}")
    return wrong
