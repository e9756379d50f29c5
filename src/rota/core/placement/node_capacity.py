"""The free part of one node: whole GPUs by type, cards that are shared, CPUs, memory, workers."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterator

from rota.core.demand import Demand
from rota.core.model import Gpu, Node, Slot
from rota.core.policy import TOLERANCE
from rota.core.taints import tolerates

PLENTY = 1_000_000
"""A count that stands for "no limit", so that arithmetic stays with whole numbers."""


class OverbookedError(Exception):
    """Somebody tried to take what is not there: a bug of ours, caught before it does harm."""


class Room:
    """Mutable scratch: `take` and `give` slots; exclusive and shared use of a card never mix."""

    __slots__ = ("cards", "cpus", "free", "gpus", "memory_bytes", "node", "position", "workers")

    def __init__(self, node: Node, position: int) -> None:
        self.node = node
        self.position = position
        self.cpus = node.cpus
        self.memory_bytes = node.memory_bytes
        self.workers = node.max_workers
        self.gpus: dict[int, Gpu] = {gpu.index: gpu for gpu in node.gpus}
        self.free: dict[str, list[int]] = {}
        self.cards: dict[int, int] = {}
        """Shared cards by index, with the bytes that are left on each."""
        for index, gpu in sorted(self.gpus.items()):
            self.free.setdefault(gpu.type, []).append(index)

    def copy(self) -> Room:
        twin = Room.__new__(Room)
        twin.node, twin.position, twin.gpus = self.node, self.position, self.gpus
        twin.cpus, twin.memory_bytes, twin.workers = self.cpus, self.memory_bytes, self.workers
        twin.free = {kind: indices.copy() for kind, indices in self.free.items()}
        twin.cards = self.cards.copy()
        return twin

    @property
    def shape(self) -> tuple[object, ...]:
        """Rooms of one shape are interchangeable for workers that share no card: whatever fits
        one of them fits the others. CPUs are rounded, because adding and taking away leaves
        traces in their last digits."""
        free = tuple(sorted((kind, len(indices)) for kind, indices in self.free.items()))
        kind = self.node.labels, self.node.taints
        return free, round(self.cpus, 6), self.memory_bytes, self.workers, kind

    def n_free(self, gpu_type: str) -> int:
        """Whole GPUs of the type that nobody holds any part of."""
        return len(self.free.get(gpu_type, ()))

    def fits(self, demand: Demand) -> int:
        """How many workers with this demand fit here now."""
        node = self.node
        if not demand.labels <= node.labels:
            return 0
        if node.taints and not tolerates(demand.tolerations, node.taints):
            return 0
        if node.id in demand.shunned:
            return 0
        count: float = min(self.workers, PLENTY)
        if demand.cpus:
            count = min(count, (self.cpus + TOLERANCE) // demand.cpus)
        if demand.memory_bytes:
            count = min(count, self.memory_bytes // demand.memory_bytes)
        if demand.gpus:
            count = min(count, self.n_free(demand.gpu_type) // demand.gpus)
        elif demand.share:
            count = min(count, sum(self._shares_by_card(demand)))
        return int(count)

    def choose(self, demand: Demand, leaving: Collection[int] = ()) -> Slot:
        """The slot that the next worker gets: the lowest free GPUs, or a share of the fullest
        card that still has room. Those that somebody is `leaving` come last: there one would have
        to wait. The caller has asked `fits`."""
        if demand.share:
            index = self._card_for(demand)
            card_bytes = self.gpus[index].memory_bytes
            need = demand.share_bytes(card_bytes)
            return Slot(self.node.id, (index,), need, need / card_bytes)
        if not demand.gpus:
            return Slot(self.node.id)
        free = self.free[demand.gpu_type]
        if leaving:
            free = sorted(free, key=lambda index: (index in leaving, index))
        return Slot(self.node.id, tuple(sorted(free[: demand.gpus])))

    def has_free(self, slot: Slot) -> bool:
        """Whether exactly these GPUs (or this share) can be taken now."""
        if slot.share_bytes:
            index = slot.gpus[0]
            left = self.bytes_left(index)
            return left is not None and left >= slot.share_bytes
        return all(self._is_whole(index) for index in slot.gpus)

    def take(self, slot: Slot, demand: Demand) -> None:
        if not self.has_free(slot):
            raise OverbookedError(f"{slot} is not free")
        if slot.share_bytes:
            index = slot.gpus[0]
            if index not in self.cards:
                self.free[self.gpus[index].type].remove(index)
                self.cards[index] = self.gpus[index].memory_bytes
            self.cards[index] -= slot.share_bytes
        else:
            for index in slot.gpus:
                self.free[self.gpus[index].type].remove(index)
        self._use(demand, 1)

    def give(self, slot: Slot, demand: Demand) -> None:
        for index in slot.gpus:
            if slot.share_bytes:
                self.cards[index] += slot.share_bytes
                if self.cards[index] < self.gpus[index].memory_bytes:
                    continue
                del self.cards[index]
            insort(self.free[self.gpus[index].type], index)
        self._use(demand, -1)

    def _use(self, demand: Demand, sign: int) -> None:
        self.cpus -= sign * demand.cpus
        self.memory_bytes -= sign * demand.memory_bytes
        self.workers -= sign
        if self.cpus < -TOLERANCE or self.memory_bytes < 0 or self.workers < 0:
            raise OverbookedError(f"CPUs, memory or workers of {self.node.id} are used up")

    def bytes_left(self, index: int) -> int | None:
        """What sharers may still take of a card; None if it is held whole or not there."""
        if index in self.cards:
            return self.cards[index]
        return self.gpus[index].memory_bytes if self._is_whole(index) else None

    def type_of(self, index: int) -> str | None:
        gpu = self.gpus.get(index)
        return gpu.type if gpu else None

    def _is_whole(self, index: int) -> bool:
        gpu = self.gpus.get(index)
        return gpu is not None and index in self.free[gpu.type]

    def _shares_by_card(self, demand: Demand) -> Iterator[int]:
        need_bytes, of_bytes = 0, -1
        for left, card_bytes, _ in self._open_cards(demand.gpu_type):
            if card_bytes != of_bytes:
                need_bytes, of_bytes = demand.share_bytes(card_bytes), card_bytes
            yield left // need_bytes

    def _card_for(self, demand: Demand) -> int:
        """The card with the least room that still fits a worker; a free one if no other does."""
        fitting = (
            (left == card_bytes, left, index)
            for left, card_bytes, index in self._open_cards(demand.gpu_type)
            if left >= demand.share_bytes(card_bytes)
        )
        return min(fitting)[2]

    def _open_cards(self, gpu_type: str) -> Iterator[tuple[int, int, int]]:
        """(bytes left, bytes in all, index) of the cards of a type that nobody holds whole."""
        for index, left in self.cards.items():
            if self.gpus[index].type == gpu_type:
                yield left, self.gpus[index].memory_bytes, index
        for index in self.free.get(gpu_type, ()):
            card_bytes = self.gpus[index].memory_bytes
            yield card_bytes, card_bytes, index
