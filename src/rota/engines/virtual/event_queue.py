"""Future events in virtual time, ordered by their time."""

from __future__ import annotations

import heapq
import math

from rota.core.model.events import Event
from rota.engines.virtual.run import VirtualRun


class VirtualEventQueue:
    """A priority queue of events. An event of a run is dropped if `VirtualRun.version` has changed
    since the event was added."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, VirtualRun | None, int, Event]] = []
        self._n_added = 0

    def add(self, run: VirtualRun | None, at_s: float, *events: Event) -> None:
        for event in events:
            self._n_added += 1
            version = run.version if run else 0
            heapq.heappush(self._heap, (at_s, self._n_added, run, version, event))

    def next_s(self) -> float:
        while self._heap:
            at_s, _, run, version, _ = self._heap[0]
            if run is None or run.version == version:
                return at_s
            heapq.heappop(self._heap)
        return math.inf

    def take(self) -> tuple[float, VirtualRun | None, Event]:
        """Remove and return the next event. Call `next_s` first; the queue must not be empty."""
        at_s, _, run, _, event = heapq.heappop(self._heap)
        return at_s, run, event
