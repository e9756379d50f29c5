"""What is free on every node, while a plan is being made or workers are being booked.

A `Capacity` is scratch paper: placement copies one, takes and gives slots on it, and throws it
away; the kernel keeps one for what is really held. Rooms are found by their number of free whole
GPUs, so that best fit does not look at every node.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from rota.core.demand import Demand
from rota.core.model import Allocation, Node, NodeId, Slot
from rota.core.room import OverbookedError, Room


class Capacity:
    """Rooms of all nodes. Nodes that drain keep their room but are offered to nobody.

    `gpus` and `card_bytes` say, by GPU type, how many there are in all and how large a card is.
    """

    __slots__ = ("_levels", "_owned", "_positions", "_rooms", "card_bytes", "gpus")

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._rooms = [Room(node, position) for position, node in enumerate(nodes)]
        self._positions = {room.node.id: room.position for room in self._rooms}
        self._owned = set(self._positions.values())
        """Rooms that no copy shares; the others are copied before they are written on."""
        self._levels: dict[str, list[list[int]]] = {}
        """By GPU type, then by number of free GPUs: the positions of rooms, ascending."""
        self.gpus: dict[str, int] = {}
        self.card_bytes: dict[str, int] = {}
        for room in self._rooms:
            if not room.node.is_draining:
                self._offer(room)

    def _offer(self, room: Room) -> None:
        for gpu_type, indices in room.free.items():
            self._level(gpu_type, len(indices)).append(room.position)
            self.gpus[gpu_type] = self.gpus.get(gpu_type, 0) + len(indices)
            self.card_bytes[gpu_type] = room.gpus[indices[0]].memory_bytes

    def copy(self) -> Capacity:
        """A copy that shares every room until one of the two writes on it."""
        twin = Capacity.__new__(Capacity)
        twin._rooms = self._rooms.copy()
        twin._positions = self._positions
        twin._levels = {
            gpu_type: [positions.copy() for positions in levels]
            for gpu_type, levels in self._levels.items()
        }
        twin.gpus, twin.card_bytes = self.gpus, self.card_bytes
        self._owned, twin._owned = set[int](), set[int]()
        return twin

    def __getitem__(self, node_id: NodeId) -> Room:
        """A node's room, to be read only."""
        return self._rooms[self._positions[node_id]]

    def has_node(self, node_id: NodeId) -> bool:
        return node_id in self._positions

    def _writable(self, position: int) -> Room:
        if position not in self._owned:
            self._rooms[position] = self._rooms[position].copy()
            self._owned.add(position)
        return self._rooms[position]

    def n_free(self, gpu_type: str) -> int:
        """Whole GPUs of the type that are free on nodes that take work."""
        levels = self._levels.get(gpu_type, [])
        return sum(n_free * len(positions) for n_free, positions in enumerate(levels))

    def take(self, slot: Slot, demand: Demand) -> None:
        position = self._positions.get(slot.node)
        if position is None:
            raise OverbookedError(f"{slot} is on a node that is gone")
        room = self._writable(position)
        before = room.n_free(demand.gpu_type)
        room.take(slot, demand)
        self._refile(room, demand.gpu_type, before=before)

    def take_all(self, allocation: Allocation, demand: Demand) -> None:
        for slot in allocation:
            self.take(slot, demand)

    def try_take_all(self, allocation: Allocation, demand: Demand) -> bool:
        """Take all slots or none."""
        for n_taken, slot in enumerate(allocation):
            if not self._is_free(slot, demand):
                self.give(allocation[:n_taken], demand)
                return False
            self.take(slot, demand)
        return True

    def give(self, allocation: Allocation, demand: Demand) -> None:
        """Give slots back; those of nodes that are gone went with them."""
        for slot in allocation:
            position = self._positions.get(slot.node)
            if position is not None:
                room = self._writable(position)
                before = room.n_free(demand.gpu_type)
                room.give(slot, demand)
                self._refile(room, demand.gpu_type, before=before)

    def by_fit(self, demand: Demand, workers: int = 1) -> Iterator[Room]:
        """Rooms that may hold so many workers, the tightest first, then in the nodes' order."""
        for level in self._candidate_levels(demand, workers):
            yield from self._open_rooms(level)

    def by_size(self, demand: Demand) -> Iterator[Room]:
        """The same rooms, the emptiest first."""
        for level in reversed(self._candidate_levels(demand, 1)):
            yield from self._open_rooms(level)

    def _candidate_levels(self, demand: Demand, workers: int) -> list[list[int]]:
        if not demand.gpu_type:
            return [list(range(len(self._rooms)))]
        return self._levels.get(demand.gpu_type, [])[demand.gpus * workers :]

    def _open_rooms(self, positions: list[int]) -> Iterator[Room]:
        rooms = self._rooms
        return (rooms[p] for p in tuple(positions) if not rooms[p].node.is_draining)

    def _is_free(self, slot: Slot, demand: Demand) -> bool:
        if slot.node not in self._positions:
            return False
        room = self[slot.node]
        bare = Demand(cpus=demand.cpus, memory_bytes=demand.memory_bytes)
        return room.has_free(slot) and room.fits(bare) > 0

    def _refile(self, room: Room, gpu_type: str, *, before: int) -> None:
        after = room.n_free(gpu_type)
        if after == before or room.node.is_draining:
            return
        positions = self._level(gpu_type, before)
        del positions[bisect_left(positions, room.position)]
        insort(self._level(gpu_type, after), room.position)

    def _level(self, gpu_type: str, n_free: int) -> list[int]:
        levels = self._levels.setdefault(gpu_type, [])
        while len(levels) <= n_free:
            levels.append([])
        return levels[n_free]
