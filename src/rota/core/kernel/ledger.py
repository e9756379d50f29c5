"""The ledger: counts what workers really hold. No worker starts unless the ledger has room for it.

The ledger knows nothing about plans and does not search for free slots. It only counts, so that it
can be checked on its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from rota.core.model.allocation import TOLERANCE, Allocation
from rota.core.model.job import JobSpec
from rota.core.model.node import Node, NodeId

GpuKey = tuple[NodeId, int]


class Ledger:
    """Counts bookings for each GPU and each node."""

    def __init__(self) -> None:
        self._whole: dict[GpuKey, int] = defaultdict(int)
        self._shared_bytes: dict[GpuKey, int] = defaultdict(int)
        self._cpus: dict[NodeId, float] = defaultdict(float)
        self._memory_bytes: dict[NodeId, int] = defaultdict(int)
        self._workers: dict[NodeId, int] = defaultdict(int)

    def has_room(
        self, allocation: Allocation, spec: JobSpec, *, nodes: Mapping[NodeId, Node]
    ) -> bool:
        """Whether all slots can be booked in addition to the current bookings."""
        if any(
            slot.node not in nodes or nodes[slot.node].is_closed_for(slot.gpus)
            for slot in allocation
        ):
            return False
        self.book(allocation, spec)
        is_sound = all(self._is_sound(nodes[slot.node], slot.gpus) for slot in allocation)
        self.unbook(allocation, spec)
        return is_sound

    def has_room_without(
        self, held: Allocation, wanted: Allocation, *, spec: JobSpec, nodes: Mapping[NodeId, Node]
    ) -> bool:
        """Whether the job could book `wanted` if it released `held` first."""
        self.unbook(held, spec)
        has_room = self.has_room(wanted, spec, nodes=nodes)
        self.book(held, spec)
        return has_room

    def book(self, allocation: Allocation, spec: JobSpec) -> None:
        """Book these slots, even if they exceed the capacity."""
        self._count(allocation, spec, sign=1)

    def unbook(self, allocation: Allocation, spec: JobSpec) -> None:
        """Release these slots."""
        self._count(allocation, spec, sign=-1)

    def is_sound(self, nodes: Mapping[NodeId, Node]) -> bool:
        """Whether no bookings on these nodes exceed the capacity."""
        return all(
            self._is_sound(node, [gpu.index for gpu in node.gpus]) for node in nodes.values()
        )

    def booked(self) -> dict[tuple[str, object], int]:
        """All bookings, to compare two ledgers."""
        counts = {
            "whole": self._whole,
            "shared bytes": self._shared_bytes,
            "memory bytes": self._memory_bytes,
            "workers": self._workers,
        }
        return {
            (what, where): count
            for what, held in counts.items()
            for where, count in held.items()
            if count
        }

    def _count(self, allocation: Allocation, spec: JobSpec, *, sign: int) -> None:
        for slot in allocation:
            self._cpus[slot.node] += sign * spec.cpus
            self._memory_bytes[slot.node] += sign * spec.memory_bytes
            self._workers[slot.node] += sign
            for index in slot.gpus:
                if slot.share_bytes:
                    self._shared_bytes[slot.node, index] += sign * slot.share_bytes
                else:
                    self._whole[slot.node, index] += sign

    def _is_sound(self, node: Node, gpus: Iterable[int]) -> bool:
        sizes = {gpu.index: gpu.memory_bytes for gpu in node.gpus}
        return (
            all(self._is_gpu_sound((node.id, index), sizes.get(index)) for index in gpus)
            and self._cpus[node.id] <= node.cpus + TOLERANCE
            and self._memory_bytes[node.id] <= node.memory_bytes
            and self._workers[node.id] <= node.max_workers
        )

    def _is_gpu_sound(self, gpu: GpuKey, gpu_bytes: int | None) -> bool:
        if gpu_bytes is None:
            return False
        whole, shared_bytes = self._whole[gpu], self._shared_bytes[gpu]
        return whole <= 1 and shared_bytes <= gpu_bytes * (1 - whole)
