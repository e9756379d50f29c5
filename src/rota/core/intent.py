"""What should be: the last plan that was committed, kept up to date as jobs end and nodes go."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rota.core.capacity import Capacity
from rota.core.demand import demand_of
from rota.core.model import Allocation, Job, JobId, Node, NodeId, Running, Starting
from rota.core.plan import Plan, diff


class Intent:
    """Planned slots and GPU types of every job, and what the plan leaves free."""

    def __init__(self) -> None:
        self.allocations: dict[JobId, Allocation] = {}
        self.gpu_types: dict[JobId, str] = {}
        self.free = Capacity(())
        self.empty = Capacity(())

    def follow(
        self, plan: Plan, jobs: Mapping[JobId, Job], *, may_run: Callable[[Job], bool]
    ) -> tuple[list[JobId], bool]:
        """Take a plan over, for those of its jobs that still may run. Returns the jobs whose
        slots changed, those who give way first, and whether some of the plan no longer fits."""
        changes = [
            change
            for change in diff(self.allocations, plan.allocations)
            if change.job_id in jobs and may_run(jobs[change.job_id])
        ]
        for change in changes:
            self.drop(jobs[change.job_id])
        is_partial = False
        for change in changes:
            job, gpu_type = jobs[change.job_id], plan.gpu_types.get(change.job_id, "")
            if change.after and not self._try_set(job, change.after, gpu_type):
                is_partial = True
        changes.sort(key=lambda change: len(change.after) > len(change.before))
        return [change.job_id for change in changes], is_partial

    def drop(self, job: Job) -> None:
        """The job should hold nothing."""
        allocation = self.allocations.pop(job.id, ())
        if allocation:
            self.free.give(allocation, demand_of(job, self.gpu_types.pop(job.id)))

    def refit(self, jobs: Mapping[JobId, Job], nodes: Mapping[NodeId, Node]) -> list[JobId]:
        """Go over to nodes that changed. Returns the jobs whose planned slots are gone."""
        allocations, gpu_types = self.allocations, self.gpu_types
        self.allocations, self.gpu_types = {}, {}
        self._set_nodes(nodes)
        return [
            job_id
            for job_id, allocation in allocations.items()
            if not self._try_set(jobs[job_id], allocation, gpu_types[job_id])
        ]

    def rebuild(self, jobs: Mapping[JobId, Job], nodes: Mapping[NodeId, Node]) -> None:
        """After a crash: what runs should go on as it is."""
        self._set_nodes(nodes)
        for job in jobs.values():
            if isinstance(job.phase, Starting | Running):
                joining = job.phase.joining if isinstance(job.phase, Running) else ()
                allocation = joining or job.allocation
                self._try_set(job, allocation, _gpu_type(allocation, nodes))

    def _set_nodes(self, nodes: Mapping[NodeId, Node]) -> None:
        self.empty = Capacity(nodes.values())
        self.free = self.empty.copy()

    def _try_set(self, job: Job, allocation: Allocation, gpu_type: str) -> bool:
        if not self.free.try_take_all(allocation, demand_of(job, gpu_type)):
            return False
        self.allocations[job.id] = allocation
        self.gpu_types[job.id] = gpu_type
        return True


def _gpu_type(allocation: Allocation, nodes: Mapping[NodeId, Node]) -> str:
    slot = allocation[0]
    gpus = nodes[slot.node].gpus if slot.node in nodes else ()
    return next((gpu.type for gpu in gpus if gpu.index in slot.gpus), "")
