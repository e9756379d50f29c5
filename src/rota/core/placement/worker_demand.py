"""What one worker of a job needs on a node."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.model import Job, Labels, NodeId, Share
from rota.core.taints import USUAL

MEMORY_MARGIN = 0.1
"""How much more than it was seen to use a sharer of a card is given."""


@dataclass(frozen=True, slots=True)
class Demand:
    """GPUs of one type ("" for none) or a share of one, and what else a worker uses up."""

    gpu_type: str = ""
    gpus: int = 0
    share: Share | None = None
    seen_bytes: int = 0
    """What the worker was seen to use of its card; counts instead of what was declared."""
    cpus: float = 0.0
    memory_bytes: int = 0
    labels: Labels = frozenset()
    tolerations: frozenset[str] = USUAL
    shunned: tuple[NodeId, ...] = ()
    """Nodes that would not have it."""

    def share_bytes(self, card_bytes: int) -> int:
        """What a sharer takes of such a card; more than the card has if it does not fit."""
        if self.share is None:
            return 0
        if not self.seen_bytes:
            return self.share.bytes_on(card_bytes)
        with_margin = int(self.seen_bytes * (1 + MEMORY_MARGIN))
        # The margin is given as far as the card has it: a job that filled a card still fits one.
        return max(self.seen_bytes, min(with_margin, card_bytes))


def demand_of(job: Job, gpu_type: str) -> Demand:
    """What a worker of the job needs; a share that was measured counts as what was seen."""
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
        shunned=job.refusal.nodes if job.refusal else (),
    )
