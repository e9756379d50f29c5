"""The resources that one worker of a job needs on a node."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.model.job import GpuShare, Job
from rota.core.model.node import DEFAULT_TOLERATIONS, Labels, NodeId

MEMORY_MARGIN = 0.1
"""How much more GPU memory than its observed use a worker with a share gets."""


@dataclass(frozen=True, slots=True)
class Demand:
    """GPUs of one type ("" for none) or a share of one GPU, and the other resources of a worker."""

    gpu_type: str = ""
    gpus: int = 0
    share: GpuShare | None = None
    seen_bytes: int = 0
    """The observed GPU memory of the worker; replaces the declared share."""
    cpus: float = 0.0
    memory_bytes: int = 0
    labels: Labels = frozenset()
    tolerations: frozenset[str] = DEFAULT_TOLERATIONS
    excluded_nodes: tuple[NodeId, ...] = ()
    """Nodes that rejected the job."""

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


def demand_of(job: Job, gpu_type: str) -> Demand:
    """The demand of one worker of the job. Observed GPU memory replaces a declared share."""
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
    )
