"""Injected faults: an engine whose reports arrive late, twice or never, and whose workers die."""

import heapq
import math
from random import Random

from rota.core.model.commands import Command
from rota.core.model.events import Event, NodeLost, NodeSeen, WorkersLost
from rota.core.model.node import Node, NodeId
from rota.engines.virtual.engine import VirtualEngine
from rota.engines.virtual.run import Delays
from tests.simulation.workload import LATE_S

EXIT_CODES = (1, 2, 77, 134, 137, 139, 143)


class FaultyEngine:
    """Wraps a fake engine. Between it and the kernel is a channel that delays, doubles and
    reorders reports; what is in the channel when the kernel crashes may be lost."""

    def __init__(self, engine: VirtualEngine, nodes: dict[NodeId, Node], random: Random) -> None:
        self.engine = engine
        self.nodes = dict(nodes)
        """The nodes that are alive, independent of what the kernel knows."""
        self.exit_codes: list[int] = []
        """Exit codes of workers that died by themselves."""
        self._random = random
        self._lateness = random.choice([0.0, 0.1, 0.5])
        self._channel: list[tuple[float, int, Event]] = []
        self._n_sent = 0

    # -- the engine model that a kernel is run with ---------------------------------------------

    def apply(self, command: Command, now: float) -> None:
        self.engine.delays = self._some_delays()
        self.engine.apply(command, now)

    def next_s(self) -> float:
        return min(self.engine.next_s(), self._channel[0][0] if self._channel else math.inf)

    def due(self, now: float) -> list[Event]:
        for event in self.engine.due(now):
            self._send(event, now)
        events: list[Event] = []
        while self._channel and self._channel[0][0] <= now:
            events.append(heapq.heappop(self._channel)[2])
        return events

    def crash(self, now: float) -> None:
        """The kernel crashed: delivered reports are lost; delayed ones may still arrive."""
        lost = self.due(now)
        assert lost is not None
        if self._random.random() < 0.5:
            self._channel.clear()

    def _some_delays(self) -> Delays:
        random = self._random
        return Delays(
            start_s=random.choice([0.0, 1.0, random.uniform(0, 90)]),
            stop_s=random.choice([0.0, 1.0, random.uniform(0, 120)]),
            switch_s=random.choice([0.0, 1.0, random.uniform(0, 60)]),
        )

    def _send(self, event: Event, now: float) -> None:
        random = self._random
        is_late = random.random() < self._lateness
        self._put(event, now + (random.uniform(0, LATE_S) if is_late else 0.0))
        if random.random() < 0.1:
            self._put(event, now + random.uniform(0, LATE_S))

    def _put(self, event: Event, at_s: float) -> None:
        self._n_sent += 1
        heapq.heappush(self._channel, (at_s, self._n_sent, event))

    # -- faults ---------------------------------------------------------------------------------

    def lose_node(self, now: float) -> None:
        """A node dies; the event reaches the kernel some time later."""
        if len(self.nodes) > 1:
            node_id = self._random.choice(sorted(self.nodes))
            del self.nodes[node_id]
            self.engine.lose_node(node_id, now)
            self._put(NodeLost(node_id), now + self._random.uniform(0, LATE_S))

    def reboot_node(self, now: float) -> None:
        """A node dies and is back before the kernel notices; its workers are gone, and the node
        rejects some of the jobs for a while."""
        node_id = self._random.choice(sorted(self.nodes))
        running = self.engine.running().items()
        self.engine.lose_node(node_id, now)
        self.engine.bring_back_node(node_id)
        for fence, workers in running:
            lost = frozenset(n for n, slot in workers.items() if slot.node == node_id)
            if lost:
                _, attempt = fence
                self._send(WorkersLost(*fence, lost, is_refused=attempt % 2 == 1), now)

    def bring_back(self, node: Node, now: float) -> None:
        """A node that the kernel knows as lost is back."""
        is_under_way = any(event == NodeLost(node.id) for _, _, event in self._channel)
        if node.id not in self.nodes and not is_under_way:
            self.nodes[node.id] = node
            self.engine.bring_back_node(node.id)
            self._put(NodeSeen(node), now)

    def end_workers(self, now: float) -> None:
        """Some or all workers of a run exit with an exit code of their own."""
        random = self._random
        running = self.engine.running()
        if not running:
            return
        fence = random.choice(sorted(running))
        alive = sorted(running[fence])
        some = random.sample(alive, random.randint(1, len(alive)))
        code = random.choice(EXIT_CODES)
        self.exit_codes.append(code)
        is_retriable = code > 0 and code % 2 == 1
        exits = dict.fromkeys(some, code)
        self.engine.end_workers(fence, exits, now=now, is_retriable=is_retriable)
