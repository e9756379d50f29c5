"""The free capacity of one node: whole GPUs by type, shared GPUs, CPUs, memory and workers."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterator

from rota.core.model.allocation import Slot
from rota.core.model.node import Gpu, Node, tolerates
from rota.core.placement.worker_demand import Demand
from rota.core.scheduling.policy_api import TOLERANCE

NO_LIMIT = 1_000_000
"""Stands for an unlimited count, so that all counts are whole numbers."""


class OverbookedError(Exception):
    """Code tried to take what is not free: a bug in rota, caught before it does harm."""


class NodeCapacity:
    """A mutable working copy: `take` and `give` slots. Exclusive and shared use of a GPU never
    mix."""

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
        """Shared GPUs by index, with the bytes that are left on each."""
        for index, gpu in sorted(self.gpus.items()):
            self.free.setdefault(gpu.type, []).append(index)

    def copy(self) -> NodeCapacity:
        twin = NodeCapacity.__new__(NodeCapacity)
        twin.node, twin.position, twin.gpus = self.node, self.position, self.gpus
        twin.cpus, twin.memory_bytes, twin.workers = self.cpus, self.memory_bytes, self.workers
        twin.free = {kind: indices.copy() for kind, indices in self.free.items()}
        twin.cards = self.cards.copy()
        return twin

    @property
    def shape(self) -> tuple[object, ...]:
        """Nodes of equal shape are interchangeable for workers without GPU shares. CPUs are
        rounded, because repeated addition and subtraction changes their last digits."""
        free = tuple(sorted((kind, len(indices)) for kind, indices in self.free.items()))
        kind = self.node.labels, self.node.taints
        return free, round(self.cpus, 6), self.memory_bytes, self.workers, kind

    def n_free(self, gpu_type: str) -> int:
        """The number of GPUs of the type that no worker uses."""
        return len(self.free.get(gpu_type, ()))

    def fits(self, demand: Demand) -> int:
        """How many workers with this demand fit now."""
        node = self.node
        if not demand.labels <= node.labels:
            return 0
        if node.taints and not tolerates(demand.tolerations, node.taints):
            return 0
        if node.id in demand.excluded_nodes:
            return 0
        count: float = min(self.workers, NO_LIMIT)
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
        """The slot for the next worker: the lowest free GPUs, or a share of the fullest GPU that
        fits it. GPUs in `leaving` come last, because the worker would have to wait for them. The
        caller must have checked `fits`."""
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
            raise OverbookedError(f"CPUs, memory or workers of {self.node.id} are overbooked")

    def bytes_left(self, index: int) -> int | None:
        """The free memory of a GPU for shares; None if one worker holds the GPU whole or the node
        has no such GPU."""
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
        """The fullest shared GPU that fits a worker; else a free GPU."""
        fitting = (
            (left == card_bytes, left, index)
            for left, card_bytes, index in self._open_cards(demand.gpu_type)
            if left >= demand.share_bytes(card_bytes)
        )
        return min(fitting)[2]

    def _open_cards(self, gpu_type: str) -> Iterator[tuple[int, int, int]]:
        """(bytes left, total bytes, index) of the GPUs of a type that no worker holds whole."""
        for index, left in self.cards.items():
            if self.gpus[index].type == gpu_type:
                yield left, self.gpus[index].memory_bytes, index
        for index in self.free.get(gpu_type, ()):
            card_bytes = self.gpus[index].memory_bytes
            yield card_bytes, card_bytes, index
