"""Why a plan stops or resizes a job: its node is drained, or another job gets its GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from rota.core.model.allocation import Allocation, added_slots
from rota.core.model.job import Job, JobId
from rota.core.model.node import Node, NodeId


class Preemptors:
    """The jobs to which a plan gives GPUs that they do not hold yet. They are looked up only if
    the plan stops a job."""

    def __init__(
        self,
        changed: Iterable[JobId],
        allocations: Mapping[JobId, Allocation],
        *,
        jobs: Mapping[JobId, Job],
        nodes: Mapping[NodeId, Node],
    ) -> None:
        """`changed`: the jobs whose planned `allocations` differ from the last plan's."""
        self._changed = tuple(changed)
        self._allocations = allocations
        self._jobs = jobs
        self._nodes = nodes

    def reason(self, job: Job) -> str:
        """The reason that the history of a stopped job shows."""
        if node := self._drained_node(job):
            return f"preempted: {node} is drained"
        other = self._preemptor(job, ())
        return f"preempted by {_named(other)}" if other else "preempted"

    def resize_reason(self, job: Job, wanted: Allocation) -> str:
        """The reason for another size, or for other GPUs: `wanted` is the planned allocation."""
        change = resize_text(job, wanted)
        if node := self._drained_node(job):
            return f"{change}: {node} is drained"
        other = self._preemptor(job, wanted)
        return f"{change} for {_named(other)}" if other else change

    def _drained_node(self, job: Job) -> NodeId | None:
        nodes = (self._nodes.get(slot.node) for slot in job.members)
        return next((node.id for node in nodes if node is not None and node.is_draining), None)

    def _preemptor(self, job: Job, wanted: Allocation) -> Job | None:
        """The job that gets a GPU which this job holds and loses."""
        for place in sorted(_gpus(job.members) - _gpus(wanted)):
            other = self._by_gpu.get(place)
            if other is not None and other.id != job.id:
                return other
        return None

    @cached_property
    def _by_gpu(self) -> dict[tuple[NodeId, int], Job]:
        """The job that gets each GPU."""
        return {
            (slot.node, index): self._jobs[job_id]
            for job_id in self._changed
            if job_id in self._jobs
            for slot in added_slots(self._jobs[job_id].members, self._allocations.get(job_id, ()))
            for index in slot.gpus
        }


def resize_text(job: Job, wanted: Allocation) -> str:
    """What a plan changes, without the reason."""
    before, after = (job.spec.gpus_of(job.spec.units_in(each)) for each in (job.members, wanted))
    if before == after:
        return "moved to other GPUs" if job.spec.unit_gpus else "moved to other nodes"
    return f"resized from {before} to {after} {'GPUs' if job.spec.unit_gpus else 'workers'}"


def _gpus(allocation: Allocation) -> set[tuple[NodeId, int]]:
    return {(slot.node, index) for slot in allocation for index in slot.gpus}


def _named(job: Job) -> str:
    owner = f"{job.spec.user}, " if job.spec.user else ""
    return f"{job.id} ({owner}priority {job.spec.priority})"
