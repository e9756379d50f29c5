"""Facts that are to come in virtual time, in the order of their moments."""

from __future__ import annotations

import heapq
import math

from rota.core.events import Event
from rota.engines.fake_run import Run


class Agenda:
    """A fact that is expected of a run does not happen if the run's future changes first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Run | None, int, Event]] = []
        self._n_expected = 0

    def expect(self, run: Run | None, at_s: float, *events: Event) -> None:
        for event in events:
            self._n_expected += 1
            version = run.version if run else 0
            heapq.heappush(self._heap, (at_s, self._n_expected, run, version, event))

    def next_s(self) -> float:
        while self._heap:
            at_s, _, run, version, _ = self._heap[0]
            if run is None or run.version == version:
                return at_s
            heapq.heappop(self._heap)
        return math.inf

    def take(self) -> tuple[float, Run | None, Event]:
        """The next one, which there must be."""
        at_s, _, run, _, event = heapq.heappop(self._heap)
        return at_s, run, event
