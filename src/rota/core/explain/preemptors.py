"""Why a plan stops a job: its node is drained, or another job gets its GPUs."""

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
        for slot in job.members:
            node = self._nodes.get(slot.node)
            if node is not None and node.is_draining:
                return f"preempted: {node.id} is drained"
        for slot in job.members:
            for index in slot.gpus:
                other = self._by_gpu.get((slot.node, index))
                if other is not None and other.id != job.id:
                    owner = f"{other.spec.user}, " if other.spec.user else ""
                    return f"preempted by {other.id} ({owner}priority {other.spec.priority})"
        return "preempted"

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
