"""What one worker of a job needs on a node."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.model import Job, Labels, Share

MEMORY_MARGIN = 0.1
"""How much more than it was seen to use a sharer of a card is given."""


@dataclass(frozen=True, slots=True)
class Demand:
    """GPUs of one type ("" for none) or a share of one, and what else a worker uses up."""

    gpu_type: str = ""
    gpus: int = 0
    share: Share | None = None
    cpus: float = 0.0
    memory_bytes: int = 0
    labels: Labels = frozenset()

    def share_bytes(self, card_bytes: int) -> int:
        return self.share.bytes_on(card_bytes) if self.share else 0


def demand_of(job: Job, gpu_type: str) -> Demand:
    """What a worker of the job needs; a share that was measured counts as what was seen."""
    spec = job.spec
    share = spec.share
    if share is not None and job.memory_bytes_seen:
        share = Share(memory_bytes=int(job.memory_bytes_seen * (1 + MEMORY_MARGIN)))
    return Demand(
        gpu_type=gpu_type if spec.uses_gpus else "",
        gpus=0 if share else spec.gpus,
        share=share,
        cpus=spec.cpus,
        memory_bytes=spec.memory_bytes,
        labels=spec.node_labels,
    )
