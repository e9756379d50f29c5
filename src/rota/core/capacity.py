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
    """Rooms of all nodes. Nodes that drain keep their room but are offered to nobody."""

    __slots__ = ("_levels", "_rooms", "_rooms_by_id")

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._rooms = [Room(node, position) for position, node in enumerate(nodes)]
        self._rooms_by_id = {room.node.id: room for room in self._rooms}
        self._levels: dict[str, list[list[int]]] = {}
        """By GPU type, then by number of free GPUs: the positions of rooms, ascending."""
        for room in self._rooms:
            for gpu_type in room.free:
                if not room.node.is_draining:
                    self._level(gpu_type, room.n_free(gpu_type)).append(room.position)

    def copy(self) -> Capacity:
        twin = Capacity.__new__(Capacity)
        twin._rooms = [room.copy() for room in self._rooms]
        twin._rooms_by_id = {room.node.id: room for room in twin._rooms}
        twin._levels = {
            gpu_type: [positions.copy() for positions in levels]
            for gpu_type, levels in self._levels.items()
        }
        return twin

    def __getitem__(self, node_id: NodeId) -> Room:
        return self._rooms_by_id[node_id]

    def has_node(self, node_id: NodeId) -> bool:
        return node_id in self._rooms_by_id

    def n_free(self, gpu_type: str) -> int:
        """Whole GPUs of the type that are free on nodes that take work."""
        levels = self._levels.get(gpu_type, [])
        return sum(n_free * len(positions) for n_free, positions in enumerate(levels))

    def take(self, slot: Slot, demand: Demand) -> None:
        room = self._rooms_by_id.get(slot.node)
        if room is None:
            raise OverbookedError(f"{slot} is on a node that is gone")
        before = room.n_free(demand.gpu_type)
        room.take(slot, demand)
        self._refile(room, demand.gpu_type, before)

    def take_all(self, allocation: Allocation, demand: Demand) -> None:
        for slot in allocation:
            self.take(slot, demand)

    def try_take_all(self, allocation: Allocation, demand: Demand) -> bool:
        """Take all slots or none."""
        for n_taken, slot in enumerate(allocation):
            room = self._rooms_by_id.get(slot.node)
            is_possible = room is not None and room.has_free(slot) and self._has_rest(room, demand)
            if not is_possible:
                self.give(allocation[:n_taken], demand)
                return False
            self.take(slot, demand)
        return True

    def give(self, allocation: Allocation, demand: Demand) -> None:
        """Give slots back; those of nodes that are gone went with them."""
        for slot in allocation:
            room = self._rooms_by_id.get(slot.node)
            if room is not None:
                before = room.n_free(demand.gpu_type)
                room.give(slot, demand)
                self._refile(room, demand.gpu_type, before)

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

    def _has_rest(self, room: Room, demand: Demand) -> bool:
        bare = Demand(cpus=demand.cpus, memory_bytes=demand.memory_bytes)
        return room.fits(bare) > 0

    def _refile(self, room: Room, gpu_type: str, before: int) -> None:
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
