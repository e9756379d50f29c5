"""Who really holds what. Whatever a plan says, no worker is started that this does not allow.

It knows nothing of plans and does not look for room; it only counts, so that it can be read and
trusted on its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from rota.core.model import Allocation, JobSpec, Node, NodeId
from rota.core.policy import TOLERANCE

Card = tuple[NodeId, int]


class Ledger:
    """Counts what is booked, per card and per node."""

    def __init__(self) -> None:
        self._whole: dict[Card, int] = defaultdict(int)
        self._shared_bytes: dict[Card, int] = defaultdict(int)
        self._cpus: dict[NodeId, float] = defaultdict(float)
        self._memory_bytes: dict[NodeId, int] = defaultdict(int)
        self._workers: dict[NodeId, int] = defaultdict(int)

    def has_room(
        self, allocation: Allocation, spec: JobSpec, *, nodes: Mapping[NodeId, Node]
    ) -> bool:
        """Whether every slot could be booked on top of what is booked now."""
        if any(slot.node not in nodes or nodes[slot.node].is_closed for slot in allocation):
            return False
        self.book(allocation, spec)
        is_sound = all(self._is_sound(nodes[slot.node], slot.gpus) for slot in allocation)
        self.unbook(allocation, spec)
        return is_sound

    def has_room_without(
        self, held: Allocation, wanted: Allocation, *, spec: JobSpec, nodes: Mapping[NodeId, Node]
    ) -> bool:
        """Whether a job could have what it wants if it gave back what it holds."""
        self.unbook(held, spec)
        has_room = self.has_room(wanted, spec, nodes=nodes)
        self.book(held, spec)
        return has_room

    def book(self, allocation: Allocation, spec: JobSpec) -> None:
        """Write down what is held, come what may."""
        self._count(allocation, spec, sign=1)

    def unbook(self, allocation: Allocation, spec: JobSpec) -> None:
        self._count(allocation, spec, sign=-1)

    def is_sound(self, nodes: Mapping[NodeId, Node]) -> bool:
        """Whether nothing on these nodes is booked beyond what there is."""
        return all(
            self._is_sound(node, [gpu.index for gpu in node.gpus]) for node in nodes.values()
        )

    def booked(self) -> dict[tuple[str, object], int]:
        """What is held of what, where; to compare two ledgers by."""
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

    def _is_sound(self, node: Node, cards: Iterable[int]) -> bool:
        sizes = {gpu.index: gpu.memory_bytes for gpu in node.gpus}
        return (
            all(self._is_card_sound((node.id, index), sizes.get(index)) for index in cards)
            and self._cpus[node.id] <= node.cpus + TOLERANCE
            and self._memory_bytes[node.id] <= node.memory_bytes
            and self._workers[node.id] <= node.max_workers
        )

    def _is_card_sound(self, card: Card, card_bytes: int | None) -> bool:
        if card_bytes is None:
            return False
        whole, shared_bytes = self._whole[card], self._shared_bytes[card]
        return whole <= 1 and shared_bytes <= card_bytes * (1 - whole)
