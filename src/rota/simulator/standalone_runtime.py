"""What a job would have were it alone on the cluster: the yardstick of the fairness figures."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.model import Allocation, JobSpec, Node, Share, Slot


class Alone:
    """Answers are kept: a trace has a hundred thousand jobs and only a few kinds of demand."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._packed: dict[int, Allocation] = {}
        self._fractions: dict[tuple[Share, tuple[str, ...]], float] = {}

    def slots(self, spec: JobSpec) -> Allocation:
        """The slots of as many workers as the cluster's GPUs serve, node by node. Workers that
        take no whole GPU all find a slot, since it is not GPUs that they run out of."""
        if not spec.gpus:
            return (Slot(self._nodes[0].id),) * spec.max_workers
        if spec.gpus not in self._packed:
            self._packed[spec.gpus] = _packed(self._nodes, spec.gpus)
        return self._packed[spec.gpus]

    def gpus_per_worker(self, spec: JobSpec) -> float:
        """A share in bytes is a part of the first card that the job could use."""
        share = spec.share
        if share is None or not share.memory_bytes:
            return share.fraction if share else spec.gpus
        key = (share, spec.gpu_types)
        if key not in self._fractions:
            self._fractions[key] = share.memory_bytes / self._card_bytes(*key)
        return self._fractions[key]

    def _card_bytes(self, share: Share, types: tuple[str, ...]) -> int:
        cards = (gpu for node in self._nodes for gpu in node.gpus)
        usable = (gpu.memory_bytes for gpu in cards if not types or gpu.type in types)
        # A job that fits on no card never runs, and has no fairness: any size serves.
        return next((size for size in usable if size >= share.memory_bytes), share.memory_bytes)


def _packed(nodes: Sequence[Node], gpus: int) -> Allocation:
    """One worker on every so many GPUs of a node."""
    return tuple(
        Slot(node.id, tuple(gpu.index for gpu in node.gpus[first : first + gpus]))
        for node in nodes
        for first in range(0, len(node.gpus) - gpus + 1, gpus)
    )
