"""The free capacity of all nodes, according to the plan.

A `ClusterCapacity` is a working copy: placement copies one, takes and gives slots, and discards it.
The kernel keeps one for the capacity that the last plan leaves free (`DesiredState.free`). The
ledger counts what is really held. Nodes are indexed by their number of free whole GPUs, so that a
best-fit search does not visit every node.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping

from rota.core.model.allocation import Allocation, Slot
from rota.core.model.node import Node, NodeId
from rota.core.placement.node_capacity import NodeCapacity, OverbookedError
from rota.core.placement.worker_demand import Demand


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
