"""The allocation of a job that runs alone on the cluster: the baseline of the fairness metrics."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.model.allocation import Allocation, Slot
from rota.core.model.job import GpuShare, JobSpec
from rota.core.model.node import Node


class StandaloneBaseline:
    """Caches its results: a trace has many thousands of jobs, but few different requests."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._packed: dict[int, Allocation] = {}
        self._fractions: dict[tuple[GpuShare, tuple[str, ...]], float] = {}

    def slots(self, spec: JobSpec) -> Allocation:
        """Return the slots of as many workers as the GPUs of the cluster can serve, node by node.

        Workers without whole GPUs always get a slot, because GPUs do not limit their number.
        """
        if not spec.gpus:
            return (Slot(self._nodes[0].id),) * spec.max_workers
        if spec.gpus not in self._packed:
            self._packed[spec.gpus] = _packed(self._nodes, spec.gpus)
        return self._packed[spec.gpus]

    def gpus_per_worker(self, spec: JobSpec) -> float:
        """Return the GPUs of a worker. A share in bytes is a fraction of the first usable GPU."""
        share = spec.share
        if share is None or not share.memory_bytes:
            return share.fraction if share else spec.gpus
        key = (share, spec.gpu_types)
        if key not in self._fractions:
            self._fractions[key] = share.memory_bytes / self._gpu_bytes(*key)
        return self._fractions[key]

    def _gpu_bytes(self, share: GpuShare, types: tuple[str, ...]) -> int:
        gpus = (gpu for node in self._nodes for gpu in node.gpus)
        usable = (gpu.memory_bytes for gpu in gpus if not types or gpu.type in types)
        # A job that fits on no GPU never runs and has no fairness value: any size will do.
        return next((size for size in usable if size >= share.memory_bytes), share.memory_bytes)


def _packed(nodes: Sequence[Node], gpus: int) -> Allocation:
    """Place one worker on every `gpus` GPUs of each node."""
    return tuple(
        Slot(node.id, tuple(gpu.index for gpu in node.gpus[first : first + gpus]))
        for node in nodes
        for first in range(0, len(node.gpus) - gpus + 1, gpus)
    )
