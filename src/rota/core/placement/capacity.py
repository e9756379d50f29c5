"""The free capacity of nodes, according to a plan.

A `ClusterCapacity` is a working copy: placement copies one, takes and gives slots, and discards it.
The kernel keeps one for the capacity that the last plan leaves free (`DesiredState.free`). The
ledger counts what is really held. Nodes are indexed by their number of free whole GPUs, so that a
best-fit search does not visit every node.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping

from rota.core.model.allocation import TOLERANCE, Allocation, Slot
from rota.core.model.node import Gpu, Node, NodeId, tolerates
from rota.core.placement.wish import Demand

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


class ClusterCapacity:
    """The free capacity of every node. Closed nodes are included but never offered.

    `gpus` is the number of offered GPUs of each type, and `card_bytes` the memory of the smallest
    GPU of each type.
    """

    __slots__ = (
        "_cards",
        "_levels",
        "_node_capacities",
        "_owned",
        "_positions",
        "card_bytes",
        "gpus",
        "leaving",
        "memory_bytes",
    )

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._node_capacities = [
            NodeCapacity(node, position) for position, node in enumerate(nodes)
        ]
        self._positions = {room.node.id: room.position for room in self._node_capacities}
        self._owned = set(self._positions.values())
        """Positions of nodes that no copy shares; shared ones are copied before a change."""
        self._levels: dict[str, list[list[int]]] = {}
        """By GPU type, then by number of free GPUs: the positions of nodes, ascending."""
        self._cards: dict[str, list[tuple[int, int, int]]] = {}
        """By GPU type: GPUs in shared use as (bytes left, node position, index), ascending."""
        self.gpus: dict[str, int] = {}
        self.card_bytes: dict[str, int] = {}
        self.memory_bytes: dict[str, int] = {}
        self.leaving: Mapping[NodeId, Collection[int]] = {}
        """GPUs that are free in the plan but still held by workers that are leaving."""
        for room in self._node_capacities:
            self._enter(room)

    def _enter(self, room: NodeCapacity) -> None:
        for gpu_type, indices in room.free.items():
            sizes = [room.gpus[index].memory_bytes for index in indices]
            smallest = min(sizes)
            self.card_bytes[gpu_type] = min(smallest, self.card_bytes.get(gpu_type, smallest))
            if not room.node.is_closed:
                self._level(gpu_type, len(indices)).append(room.position)
                self.gpus[gpu_type] = self.gpus.get(gpu_type, 0) + len(indices)
                self.memory_bytes[gpu_type] = self.memory_bytes.get(gpu_type, 0) + sum(sizes)

    def copy(self) -> ClusterCapacity:
        """A copy that shares all node capacities until either side changes one."""
        twin = ClusterCapacity.__new__(ClusterCapacity)
        twin._node_capacities = self._node_capacities.copy()
        twin._positions = self._positions
        twin._levels = {
            gpu_type: [positions.copy() for positions in levels]
            for gpu_type, levels in self._levels.items()
        }
        twin._cards = {gpu_type: cards.copy() for gpu_type, cards in self._cards.items()}
        twin.gpus, twin.card_bytes = self.gpus, self.card_bytes
        twin.memory_bytes, twin.leaving = self.memory_bytes, self.leaving
        self._owned, twin._owned = set[int](), set[int]()
        return twin

    def __getitem__(self, node_id: NodeId) -> NodeCapacity:
        """The capacity of one node. Read only."""
        return self._node_capacities[self._positions[node_id]]

    def has_node(self, node_id: NodeId) -> bool:
        return node_id in self._positions

    def _writable(self, position: int) -> NodeCapacity:
        if position not in self._owned:
            self._node_capacities[position] = self._node_capacities[position].copy()
            self._owned.add(position)
        return self._node_capacities[position]

    def n_free(self, gpu_type: str) -> int:
        """The number of free whole GPUs of the type on open nodes."""
        levels = self._levels.get(gpu_type, [])
        return sum(n_free * len(positions) for n_free, positions in enumerate(levels))

    def free_gpus(self, gpu_type: str) -> float:
        """The number of free GPUs, including the free parts of shared GPUs."""
        left = sum(left for left, _, _ in self._cards.get(gpu_type, ()))
        return self.n_free(gpu_type) + (left / self.card_bytes[gpu_type] if left else 0.0)

    def take(self, slot: Slot, demand: Demand) -> None:
        """Take one slot. Raises `OverbookedError` if it is not free."""
        position = self._positions.get(slot.node)
        if position is None:
            raise OverbookedError(f"{slot} is on an unknown node")
        room = self._writable(position)
        before = room.n_free(demand.gpu_type)
        if slot.share_bytes:
            self._unfile_card(room, slot.gpus[0])
        try:
            room.take(slot, demand)
        finally:
            if slot.share_bytes:
                self._file_card(room, slot.gpus[0])
        self._refile(room, demand.gpu_type, before=before)

    def take_all(self, allocation: Allocation, demand: Demand) -> None:
        for slot in allocation:
            self.take(slot, demand)

    def try_take_all(self, allocation: Allocation, demand: Demand) -> bool:
        """Take all slots or none. Returns whether they were taken."""
        for n_taken, slot in enumerate(allocation):
            if not self._is_free(slot, demand):
                self.give(allocation[:n_taken], demand)
                return False
            self.take(slot, demand)
        return True

    def give(self, allocation: Allocation, demand: Demand) -> None:
        """Give slots back. Slots on nodes that are gone are ignored."""
        for slot in allocation:
            position = self._positions.get(slot.node)
            if position is not None:
                room = self._writable(position)
                before = room.n_free(demand.gpu_type)
                if slot.share_bytes:
                    self._unfile_card(room, slot.gpus[0])
                room.give(slot, demand)
                if slot.share_bytes:
                    self._file_card(room, slot.gpus[0])
                self._refile(room, demand.gpu_type, before=before)

    def by_fit(self, demand: Demand, workers: int = 1) -> Iterator[NodeCapacity]:
        """Nodes that may fit `workers` workers, the tightest first, then in node order. Nodes where
        the workers would wait for leaving workers come last."""
        late: list[NodeCapacity] = []
        for level in self._candidate_levels(demand, workers):
            for room in self._schedulable_nodes(level):
                if self.leaving and self._has_to_wait(room, demand, workers=workers):
                    late.append(room)
                else:
                    yield room
        yield from late

    def choose(self, node_id: NodeId, demand: Demand) -> Slot:
        """The slot for the next worker on a node that has one."""
        return self[node_id].choose(demand, self.leaving.get(node_id, ()))

    def by_size(self, demand: Demand) -> Iterator[NodeCapacity]:
        """The same nodes, the emptiest first."""
        for level in reversed(self._candidate_levels(demand, 1)):
            yield from self._schedulable_nodes(level)

    def by_card(self, demand: Demand) -> Iterator[NodeCapacity]:
        """For shares: nodes with a shared GPU that fits a worker, the fullest GPU first; then nodes
        with a free GPU, the tightest first."""
        cards = self._cards.get(demand.gpu_type, [])
        least = demand.share_bytes(self.card_bytes.get(demand.gpu_type, 0))
        for i in range(bisect_left(cards, (least,)), len(cards)):
            left, position, index = cards[i]
            room = self._node_capacities[position]
            if left >= demand.share_bytes(room.gpus[index].memory_bytes):
                yield room
        for level in self._levels.get(demand.gpu_type, [])[1:]:
            yield from self._schedulable_nodes(level)

    def _has_to_wait(self, room: NodeCapacity, demand: Demand, *, workers: int) -> bool:
        leaving = self.leaving.get(room.node.id)
        if not leaving or not demand.gpus:
            return False
        free = room.free.get(demand.gpu_type, ())
        n_left = sum(index not in leaving for index in free)
        return n_left < demand.gpus * workers

    def _candidate_levels(self, demand: Demand, workers: int) -> list[list[int]]:
        if not demand.gpu_type:
            return [list(range(len(self._node_capacities)))]
        return self._levels.get(demand.gpu_type, [])[demand.gpus * workers :]

    def _schedulable_nodes(self, positions: list[int]) -> Iterator[NodeCapacity]:
        rooms = self._node_capacities
        return (rooms[p] for p in tuple(positions) if not rooms[p].node.is_closed)

    def _is_free(self, slot: Slot, demand: Demand) -> bool:
        if slot.node not in self._positions:
            return False
        room = self[slot.node]
        bare = Demand(
            cpus=demand.cpus, memory_bytes=demand.memory_bytes, tolerations=demand.tolerations
        )
        is_of_type = all(room.type_of(index) == demand.gpu_type for index in slot.gpus)
        return is_of_type and room.has_free(slot) and room.fits(bare) > 0

    def _refile(self, room: NodeCapacity, gpu_type: str, *, before: int) -> None:
        after = room.n_free(gpu_type)
        if after == before or room.node.is_closed:
            return
        positions = self._level(gpu_type, before)
        del positions[bisect_left(positions, room.position)]
        insort(self._level(gpu_type, after), room.position)

    def _file_card(self, room: NodeCapacity, index: int) -> None:
        if index in room.cards and not room.node.is_closed:
            cards = self._cards.setdefault(room.gpus[index].type, [])
            insort(cards, (room.cards[index], room.position, index))

    def _unfile_card(self, room: NodeCapacity, index: int) -> None:
        if index in room.cards and not room.node.is_closed:
            cards = self._cards[room.gpus[index].type]
            del cards[bisect_left(cards, (room.cards[index], room.position, index))]

    def _level(self, gpu_type: str, n_free: int) -> list[int]:
        levels = self._levels.setdefault(gpu_type, [])
        while len(levels) <= n_free:
            levels.append([])
        return levels[n_free]
