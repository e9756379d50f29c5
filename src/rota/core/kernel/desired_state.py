"""The desired state: the last committed plan, updated as jobs end and nodes disappear."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from rota.core.model.allocation import Allocation, Slot
from rota.core.model.job import Job, JobId, JobSpec, Running, Starting
from rota.core.model.node import Node, NodeId
from rota.core.placement.capacity import ClusterCapacity
from rota.core.placement.wish import Demand, demand_of
from rota.core.scheduling.plan import AllocationChange, Plan, diff


class DesiredState:
    """The planned slots and GPU types of every job, and the capacity that the plan leaves free."""

    def __init__(self) -> None:
        self.allocations: dict[JobId, Allocation] = {}
        self.gpu_types: dict[JobId, str] = {}
        self._demands: dict[JobId, Demand] = {}
        self._free = self._empty = ClusterCapacity(())
        self._nodes: tuple[Node, ...] = ()
        """The nodes in the capacities. A lost node stays here until `refit`."""
        self._new_nodes: list[Node] = []
        """Nodes that the capacities do not include yet."""

    @property
    def free(self) -> ClusterCapacity:
        """The capacity that the plan leaves free."""
        self._catch_up()
        return self._free

    @property
    def empty(self) -> ClusterCapacity:
        """The total capacity."""
        self._catch_up()
        return self._empty

    def add_node(self, node: Node) -> None:
        """Add a new node. Changed nodes go through `refit`."""
        self._new_nodes.append(node)

    def _catch_up(self) -> None:
        """Rebuild the capacities once for all new nodes: a large cluster starts node by node."""
        if not self._new_nodes:
            return
        self._set_nodes((*self._nodes, *self._new_nodes))
        for job_id, allocation in self.allocations.items():
            self._free.take(allocation, self._demands[job_id])

    def adopt(
        self, plan: Plan, jobs: Mapping[JobId, Job], *, may_run: Callable[[Job], bool]
    ) -> tuple[list[JobId], bool]:
        """Adopt a plan for those of its jobs that may still run. Returns the jobs whose slots
        changed, first those that give up slots, and whether a part of the plan no longer fits."""
        changes = [
            change
            for change in diff(self.allocations, plan.allocations)
            if change.job_id in jobs and may_run(jobs[change.job_id])
        ]
        gpu_types = {change.job_id: self.gpu_types.get(change.job_id, "") for change in changes}
        for change in changes:
            self.drop(jobs[change.job_id])
        stale = [
            change
            for change in changes
            if change.after
            and not self._try_set(jobs[change.job_id], change.after, gpu_types=plan.gpu_types)
        ]
        for change in stale:
            # A job that cannot have its new slots keeps its old ones, if they still fit.
            self._try_set(jobs[change.job_id], change.before, gpu_types=gpu_types)
        changes.sort(key=lambda change: _grows(change, jobs[change.job_id].spec))
        return [change.job_id for change in changes], bool(stale)

    def drop(self, job: Job) -> bool:
        """Plan nothing for the job. Returns whether the job had planned slots."""
        if job.id not in self.allocations:
            return False
        self.free.give(self.allocations[job.id], self._demands[job.id])
        del self.allocations[job.id], self.gpu_types[job.id], self._demands[job.id]
        return True

    def lose(self, job: Job, dead: Sequence[Slot]) -> None:
        """The job continues without the workers in these slots. The remaining planned slots stay
        planned if they are enough; else the slots of the next generation are planned."""
        left = list(self.allocations.get(job.id, ()))
        gpu_types = {job.id: self.gpu_types.get(job.id, "")}
        self.drop(job)
        for slot in dead:
            if slot in left:
                left.remove(slot)
        next_generation = job.phase.joining if isinstance(job.phase, Running) else ()
        for wanted in (tuple(left), next_generation):
            is_enough = job.spec.units_in(wanted) >= job.spec.min_workers
            if is_enough and self._try_set(job, wanted, gpu_types=gpu_types):
                return

    def leaving(self, holding: Iterable[Job]) -> dict[NodeId, set[int]]:
        """The GPUs that are still held by workers that the plan has moved or stopped. `holding` are
        all jobs that hold slots."""
        found: dict[NodeId, set[int]] = defaultdict(set)
        for job in holding:
            held, planned = job.members, self.allocations.get(job.id, ())
            if held is not planned:
                for slot in held:
                    if slot.gpus and slot not in planned:
                        found[slot.node].update(slot.gpus)
        return dict(found)

    def move(self, job: Job, slot: Slot) -> bool:
        """Plan another slot for the worker in this slot, preferably on a node that the job already
        uses. Returns whether a slot was free. A worker with all GPUs of its node stays: a node has
        one worker of such a job."""
        wanted, demand = self.allocations.get(job.id, ()), self._demands.get(job.id)
        if slot not in wanted or demand is None or demand.merges_units:
            return False
        nodes = self.free.by_fit(demand)
        found = [node.choose(demand) for node in nodes if node.fits(demand)]
        others = [each for each in found if (each.node, each.gpus) != (slot.node, slot.gpus)]
        if not others:
            return False
        own_nodes = {each.node for each in wanted}
        other = min(others, key=lambda each: each.node not in own_nodes)
        self.free.take((other,), demand)
        self.free.give((slot,), demand)
        place = wanted.index(slot)
        self.allocations[job.id] = (*wanted[:place], other, *wanted[place + 1 :])
        return True

    def refit(self, jobs: Mapping[JobId, Job], nodes: Mapping[NodeId, Node]) -> list[JobId]:
        """Adopt changed nodes. Returns the jobs whose planned slots no longer exist; each of them
        stays in its current slots if possible."""
        allocations = self.allocations
        gpu_types = {
            job_id: _gpu_type(allocation, nodes) or self.gpu_types[job_id]
            for job_id, allocation in allocations.items()
        }
        self.allocations, self.gpu_types, self._demands = {}, {}, {}
        self._set_nodes(nodes.values())
        gone = [
            job_id
            for job_id, allocation in allocations.items()
            if not self._try_set(jobs[job_id], allocation, gpu_types=gpu_types)
        ]
        for job_id in gone:
            job = jobs[job_id]
            if isinstance(job.phase, Starting | Running):
                self._try_set(job, job.allocation, gpu_types=gpu_types)
        return gone

    def rebuild(self, jobs: Mapping[JobId, Job], nodes: Mapping[NodeId, Node]) -> None:
        """After a crash: plan that every running job stays as it is."""
        self._set_nodes(nodes.values())
        for job in jobs.values():
            if isinstance(job.phase, Starting | Running):
                joining = job.phase.joining if isinstance(job.phase, Running) else ()
                allocation = joining or job.allocation
                self._try_set(job, allocation, gpu_types={job.id: _gpu_type(allocation, nodes)})

    def _set_nodes(self, nodes: Iterable[Node]) -> None:
        self._nodes, self._new_nodes = tuple(nodes), []
        self._empty = ClusterCapacity(self._nodes)
        self._free = self._empty.copy()

    def _try_set(self, job: Job, allocation: Allocation, *, gpu_types: Mapping[JobId, str]) -> bool:
        gpu_type = gpu_types.get(job.id, "")
        demand = demand_of(job, gpu_type)
        if not allocation or not self.free.try_take(allocation, demand):
            return False
        self.allocations[job.id] = allocation
        self.gpu_types[job.id] = gpu_type
        self._demands[job.id] = demand
        return True


def _grows(change: AllocationChange, spec: JobSpec) -> bool:
    return spec.units_in(change.after) > spec.units_in(change.before)


def _gpu_type(allocation: Allocation, nodes: Mapping[NodeId, Node]) -> str:
    slot = allocation[0]
    gpus = nodes[slot.node].gpus if slot.node in nodes else ()
    return next((gpu.type for gpu in gpus if gpu.index in slot.gpus), "")
