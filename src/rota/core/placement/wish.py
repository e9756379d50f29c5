"""Wishes: how many units a job should hold, and what each unit needs on a node.

All units of a wish have the same demand. Within a placement each unit has a slot of its own, also
where all units of a job on a node are one worker: `unit_slots` splits the workers of such a job,
and the placement merges them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rota.core.model.allocation import Allocation, n_gpus, split_workers
from rota.core.model.job import GpuShare, Job
from rota.core.model.node import DEFAULT_TOLERATIONS, Labels, NodeId
from rota.core.model.rank import Rank

MEMORY_MARGIN = 0.1
"""How much more GPU memory than its observed use a unit with a share gets."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one unit needs on a node: GPUs of one type ("" for none) or a share of one GPU, and
    the other resources of a worker."""

    gpu_type: str = ""
    gpus: int = 0
    share: GpuShare | None = None
    seen_bytes: int = 0
    """The observed GPU memory of the unit; replaces the declared share."""
    cpus: float = 0.0
    memory_bytes: int = 0
    labels: Labels = frozenset()
    tolerations: frozenset[str] = DEFAULT_TOLERATIONS
    excluded_nodes: tuple[NodeId, ...] = ()
    """Nodes that rejected the job."""
    merges_units: bool = False
    """Whether the units on a node are one worker, which needs the other resources once."""
    max_nodes: int = 0
    """The most nodes that the units may use together; 0: any number."""

    def share_bytes(self, card_bytes: int) -> int:
        """The memory of a share on a GPU of this size; more than the GPU has if the share does not
        fit."""
        if self.share is None:
            return 0
        if not self.seen_bytes:
            return self.share.bytes_on(card_bytes)
        with_margin = int(self.seen_bytes * (1 + MEMORY_MARGIN))
        # The margin ends at the GPU's memory: a job that filled a whole GPU still fits on one.
        return max(self.seen_bytes, min(with_margin, card_bytes))

    def n_gpus(self, card_bytes: Mapping[str, int]) -> float:
        """The GPUs of one unit; a fraction for a share. `card_bytes` is the memory of a GPU of each
        type."""
        if self.share is None:
            return self.gpus
        return self.share_bytes(card_bytes[self.gpu_type]) / card_bytes[self.gpu_type]


def demand_of(job: Job, gpu_type: str) -> Demand:
    """The demand of one unit of the job. Observed GPU memory replaces a declared share."""
    spec = job.spec
    return Demand(
        gpu_type=gpu_type if spec.uses_gpus else "",
        gpus=0 if spec.share else spec.gpus,
        share=spec.share,
        seen_bytes=job.memory_bytes_seen if spec.share else 0,
        cpus=spec.cpus,
        memory_bytes=spec.memory_bytes,
        labels=spec.node_labels,
        tolerations=spec.tolerations,
        excluded_nodes=job.refusal.nodes if job.refusal else (),
        merges_units=spec.merges_units,
        max_nodes=spec.max_nodes,
    )


def unit_slots(job: Job, allocation: Allocation) -> Allocation:
    """The slots of the job's units: one for each unit, also where one worker has several units."""
    return split_workers(allocation) if job.spec.merges_units else allocation


@dataclass(frozen=True, slots=True)
class Wish:
    """What one job should hold; no units for a job that should stop."""

    job: Job
    rank: Rank
    units: int
    demand: Demand
    held: Allocation = ()
    """The slots of the job's units in the last plan. Their GPU type may be another one."""
    leaves: bool = False
    """Whether the job gives up all its slots, because it must or may move."""
    yields: bool = False
    """Whether the job changes only if another wish needs its slots."""

    @property
    def kept(self) -> Allocation:
        """The slots that the job keeps in any case."""
        return () if self.leaves else self.held[: self.units]

    @property
    def n_missing(self) -> int:
        """The units for which the job needs slots that it does not hold."""
        return self.units - len(self.kept)

    @property
    def gpus_together(self) -> int:
        """The whole GPUs that have to be on one node."""
        return self.demand.gpus * (self.units if self.demand.max_nodes == 1 else 1)

    @property
    def as_one_unit(self) -> Wish:
        """The same wish as one large unit, if all its units have to be one worker."""
        demand = self.demand
        if not demand.merges_units or demand.share or demand.max_nodes != 1 or not self.units:
            return self
        whole = replace(demand, gpus=self.gpus_together, merges_units=False, max_nodes=0)
        return replace(self, units=1, demand=whole)

    @property
    def freed_gpus(self) -> float:
        """The GPUs that the job gives up if it gets what it should hold."""
        return n_gpus(self.held) - n_gpus(self.held[: self.units])
