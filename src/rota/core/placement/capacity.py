"""The free capacity of nodes, according to a plan.

A `ClusterCapacity` is a working copy: placement copies one, takes and gives slots, and discards it.
The kernel keeps one for the capacity that the last plan leaves free (`DesiredState.free`). The
ledger counts what is really held. Nodes are sorted by their number of free whole GPUs, so that a
best-fit search does not visit every node.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from rota.core.model.allocation import TOLERANCE, Allocation, Slot
from rota.core.model.node import Node, NodeId, tolerates
from rota.core.placement.wish import Demand

NO_LIMIT = 1_000_000
"""Stands for an unlimited count, so that all counts are whole numbers."""


class OverbookedError(Exception):
    """Code tried to take what is not free: a bug in rota, caught before it does harm."""


class NodeCapacity:
    """The free capacity of one node. Copies of a cluster share it, so a change makes a new one.

    Each GPU has a number of free bytes: all of them if no worker uses the GPU, and none if one
    worker holds the whole GPU. So exclusive and shared use of a GPU never mix. A missing GPU is
    never offered; only the workers that hold it may take it again.
    """

    def __init__(self, node: Node, order: int) -> None:
        self.node = node
        self.order = order
        self.cpus = node.cpus
        self.memory_bytes = node.memory_bytes
        self.workers = node.max_workers
        # A GPU of unknown memory has one byte, so that it can be used up.
        self.gpus = {
            gpu.index: gpu if gpu.memory_bytes else replace(gpu, memory_bytes=1)
            for gpu in node.gpus
        }
        self.free_bytes = {index: gpu.memory_bytes for index, gpu in self.gpus.items()}
        offered = [gpu.type for gpu in node.gpus if gpu.index not in node.missing_gpus]
        self._n_free = {gpu.type: 0 for gpu in node.gpus} | Counter(offered)

    def n_free(self, gpu_type: str) -> int:
        """The number of GPUs of the type that no worker uses."""
        return self._n_free.get(gpu_type, 0)

    def free(self, gpu_type: str) -> list[int]:
        """The indices of these GPUs."""
        gpus = self.gpus.items()
        return [index for index, gpu in gpus if gpu.type == gpu_type and self.is_free(index)]

    def is_free(self, index: int) -> bool:
        """Whether no worker uses this GPU, and a new one may."""
        is_unused = self.free_bytes[index] == self.gpus[index].memory_bytes
        return is_unused and index not in self.node.missing_gpus

    def is_tolerated(self, demand: Demand) -> bool:
        return not self.node.taints or tolerates(demand.tolerations, self.node.taints)

    def admits(self, demand: Demand) -> bool:
        """Whether workers with this demand may run here at all."""
        is_labelled = demand.labels <= self.node.labels
        is_excluded = self.node.id in demand.excluded_nodes
        return is_labelled and not is_excluded and self.is_tolerated(demand)

    def fits(self, demand: Demand) -> int:
        """How many units with this demand fit now."""
        if not self.admits(demand):
            return 0
        count = self._fits_beside_gpus(demand)
        if demand.merges_units and count:
            count = NO_LIMIT
        if demand.gpus:
            count = min(count, self.n_free(demand.gpu_type) // demand.gpus)
        elif demand.share and count:
            most = 1 if demand.merges_units else NO_LIMIT
            fits = (min(left // need, most) for left, need, _ in self._shares(demand))
            count = min(count, sum(fits))
        return count

    def _fits_beside_gpus(self, demand: Demand) -> int:
        """How many workers fit, apart from their GPUs."""
        count: float = min(self.workers, NO_LIMIT)
        if demand.cpus:
            count = min(count, (self.cpus + TOLERANCE) // demand.cpus)
        if demand.memory_bytes:
            count = min(count, self.memory_bytes // demand.memory_bytes)
        return int(count)

    def choose(
        self, demand: Demand, leaving: Collection[int] = (), *, own: Collection[int] = ()
    ) -> Slot:
        """The slot for the next unit: the lowest free GPUs, or a share of the fullest GPU that fits
        it. GPUs in `leaving` come last, because the unit would have to wait for them. GPUs in `own`
        have another unit of the same worker. The caller must have checked `fits`."""
        if demand.share:
            others = (each for each in self._shares(demand) if each[2] not in own)
            shares = ((self.is_free(i), left, need, i) for left, need, i in others)
            _, _, need, index = min(each for each in shares if each[1] >= each[2])
            return Slot(self.node.id, (index,), need, need / self.gpus[index].memory_bytes)
        free = sorted(self.free(demand.gpu_type), key=lambda index: (index in leaving, index))
        return Slot(self.node.id, tuple(sorted(free[: demand.gpus])))

    def has_free(self, slot: Slot, demand: Demand) -> bool:
        """Whether a worker with this demand can take exactly this slot now."""
        for index in slot.gpus:
            gpu = self.gpus.get(index)
            if gpu is None or gpu.type != demand.gpu_type:
                return False
            if self.free_bytes[index] < (slot.share_bytes or gpu.memory_bytes):
                return False
        return slot.is_follower or self._fits_beside_gpus(demand) > 0

    def changed(self, slot: Slot, demand: Demand, *, sign: int) -> NodeCapacity:
        """The node's capacity after a worker has left (1) or taken (-1) a slot."""
        new = NodeCapacity.__new__(NodeCapacity)
        new.__dict__.update(self.__dict__)
        if slot.gpus:
            new.free_bytes, new._n_free = self.free_bytes.copy(), self._n_free.copy()
        for index in slot.gpus:
            gpu = self.gpus[index]
            new.free_bytes[index] += sign * (slot.share_bytes or gpu.memory_bytes)
            new._n_free[gpu.type] += new.is_free(index) - self.is_free(index)
        n_workers = 0 if slot.is_follower else sign
        new.cpus = self.cpus + n_workers * demand.cpus
        new.memory_bytes = self.memory_bytes + n_workers * demand.memory_bytes
        new.workers = self.workers + n_workers
        return new

    def _shares(self, demand: Demand) -> Iterator[tuple[int, int, int]]:
        """(free bytes, bytes of a share, index) of each offered GPU of the demanded type."""
        for index, gpu in self.gpus.items():
            if gpu.type == demand.gpu_type and index not in self.node.missing_gpus:
                yield self.free_bytes[index], demand.share_bytes(gpu.memory_bytes), index


class ClusterCapacity:
    """The free capacity of every node. Closed nodes are included but never offered.

    `gpus` is the number of offered GPUs of each type, and `card_bytes` the memory of the smallest
    GPU of each type.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._rooms = [NodeCapacity(node, order) for order, node in enumerate(nodes)]
        self._order = {room.node.id: room.order for room in self._rooms}
        self._by_free: dict[str, list[tuple[int, int]]] = {}
        """By GPU type: the open nodes as (number of free GPUs, order), ascending."""
        self._shared: dict[str, list[tuple[int, int, int]]] = {}
        """By GPU type: the shared GPUs of open nodes as (free bytes, order of node, index)."""
        self.gpus: dict[str, int] = {}
        self.card_bytes: dict[str, int] = {}
        self.memory_bytes: dict[str, int] = {}
        self._n_free: dict[str, int] = defaultdict(int)
        """The number of free whole GPUs of each type on open nodes."""
        self.leaving: Mapping[NodeId, Collection[int]] = {}
        """GPUs that are free in the plan but still held by workers that are leaving."""
        for room in self._rooms:
            for gpu in room.gpus.values():
                smallest = self.card_bytes.get(gpu.type, gpu.memory_bytes)
                self.card_bytes[gpu.type] = min(smallest, gpu.memory_bytes)
                if not room.node.is_closed and gpu.index not in room.node.missing_gpus:
                    self.gpus[gpu.type] = self.gpus.get(gpu.type, 0) + 1
                    total_bytes = self.memory_bytes.get(gpu.type, 0) + gpu.memory_bytes
                    self.memory_bytes[gpu.type] = total_bytes
            for gpu_type in {gpu.type for gpu in room.node.gpus if not room.node.is_closed}:
                entry = (room.n_free(gpu_type), room.order)
                insort(self._by_free.setdefault(gpu_type, []), entry)
                self._n_free[gpu_type] += entry[0]

    def copy(self) -> ClusterCapacity:
        twin = ClusterCapacity.__new__(ClusterCapacity)
        twin.__dict__.update(self.__dict__)
        twin._rooms = self._rooms.copy()
        twin._n_free = self._n_free.copy()
        twin._by_free = {gpu_type: index.copy() for gpu_type, index in self._by_free.items()}
        twin._shared = {gpu_type: index.copy() for gpu_type, index in self._shared.items()}
        return twin

    def __getitem__(self, node_id: NodeId) -> NodeCapacity:
        return self._rooms[self._order[node_id]]

    def has_node(self, node_id: NodeId) -> bool:
        return node_id in self._order

    def n_free(self, gpu_type: str) -> int:
        """The number of free whole GPUs of the type on open nodes."""
        return self._n_free.get(gpu_type, 0)

    def free_gpus(self, gpu_type: str) -> float:
        """The number of free GPUs, including the free parts of shared GPUs."""
        left = sum(free for free, _, _ in self._shared.get(gpu_type, ()))
        return self.n_free(gpu_type) + (left / self.card_bytes[gpu_type] if left else 0.0)

    def has_free(self, slot: Slot, demand: Demand) -> bool:
        """Whether a worker with this demand can take exactly this slot now."""
        return slot.node in self._order and self[slot.node].has_free(slot, demand)

    def take(self, allocation: Allocation, demand: Demand) -> None:
        """Take all slots. Raises `OverbookedError`, and takes none, if one of them is not free."""
        for n_taken, slot in enumerate(allocation):
            if not self.has_free(slot, demand):
                self.give(allocation[:n_taken], demand)
                raise OverbookedError(f"{slot} is not free")
            self._change(slot, demand, sign=-1)

    def try_take(self, allocation: Allocation, demand: Demand) -> bool:
        """Take all slots or none. Returns whether they were taken."""
        nodes = {slot.node for slot in allocation}
        if not all(self.has_node(each) and self[each].is_tolerated(demand) for each in nodes):
            return False
        try:
            self.take(allocation, demand)
        except OverbookedError:
            return False
        return True

    def give(self, allocation: Allocation, demand: Demand) -> None:
        """Give slots back. Slots on nodes that are gone are ignored."""
        for slot in allocation:
            if slot.node in self._order:
                self._change(slot, demand, sign=1)

    def _change(self, slot: Slot, demand: Demand, *, sign: int) -> None:
        before = self[slot.node]
        after = self._rooms[before.order] = before.changed(slot, demand, sign=sign)
        if before.node.is_closed or not slot.gpus:
            return
        gpu_type = before.gpus[slot.gpus[0]].type
        n_before, n_after = before.n_free(gpu_type), after.n_free(gpu_type)
        if n_before != n_after:
            nodes = self._by_free[gpu_type]
            del nodes[bisect_left(nodes, (n_before, before.order))]
            insort(nodes, (n_after, after.order))
            self._n_free[gpu_type] += n_after - n_before
        offered = set(slot.gpus) - before.node.missing_gpus if slot.share_bytes else ()
        for index in offered:
            shared = self._shared.setdefault(gpu_type, [])
            if not before.is_free(index):
                del shared[bisect_left(shared, (before.free_bytes[index], before.order, index))]
            if not after.is_free(index):
                insort(shared, (after.free_bytes[index], after.order, index))

    def choose(self, node_id: NodeId, demand: Demand, *, own: Collection[int] = ()) -> Slot:
        """The slot for the next unit on a node that has one. GPUs in `own` have another unit of the
        same worker."""
        return self[node_id].choose(demand, self.leaving.get(node_id, ()), own=own)

    def with_free(self, gpu_type: str, at_least: int) -> Iterator[NodeCapacity]:
        """Open nodes with so many free GPUs, the tightest first; without a type all open nodes. Do
        not take or give slots meanwhile."""
        if not gpu_type:
            yield from (room for room in self._rooms if not room.node.is_closed)
        nodes = self._by_free.get(gpu_type, [])
        for i in range(bisect_left(nodes, (at_least,)), len(nodes)):
            yield self._rooms[nodes[i][1]]

    def by_fit(self, demand: Demand, workers: int = 1) -> Iterator[NodeCapacity]:
        """Nodes that may fit so many workers, in the order in which they should be used: for
        shares, first those with the fullest shared GPU; then the tightest. Nodes where the workers
        would have to wait for leaving workers come last."""
        if demand.share:
            yield from self._with_shared_gpu(demand)
        late: list[NodeCapacity] = []
        at_least = 1 if demand.share else demand.gpus * workers
        for room in self.with_free(demand.gpu_type, at_least):
            leaving = self.leaving.get(room.node.id) if demand.gpus else None
            if leaving and sum(i not in leaving for i in room.free(demand.gpu_type)) < at_least:
                late.append(room)
            else:
                yield room
        yield from late

    def _with_shared_gpu(self, demand: Demand) -> Iterator[NodeCapacity]:
        shared = self._shared.get(demand.gpu_type, [])
        smallest = demand.share_bytes(self.card_bytes.get(demand.gpu_type, 0))
        for i in range(bisect_left(shared, (smallest,)), len(shared)):
            free_bytes, order, index = shared[i]
            if free_bytes >= demand.share_bytes(self._rooms[order].gpus[index].memory_bytes):
                yield self._rooms[order]
