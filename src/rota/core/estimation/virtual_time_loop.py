"""The event loop over virtual time: events, rounds and timers, in the order of a simulated clock.

The forecast and the simulator run the kernel with this loop; the daemon runs the same kernel with a
real clock. The decision function and the engine are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from rota.core.kernel.kernel import Kernel
from rota.core.model.commands import Command
from rota.core.model.effects import Effects
from rota.core.model.events import Event, TimerFired
from rota.core.scheduling.plan import Plan
from rota.core.scheduling.view import View

TimedEvent = tuple[float, Event]


class EngineModel(Protocol):
    """Runs workers in virtual time."""

    def apply(self, command: Command, now: float) -> None: ...

    def next_s(self) -> float:
        """When the next event happens; infinite if none is planned."""
        ...

    def due(self, now: float) -> Iterable[Event]:
        """The events that have happened by now, each returned once."""
        ...


class VirtualTimeLoop:
    """One run. `decide` makes plans; `record` stores effects before commands are sent."""

    def __init__(
        self,
        kernel: Kernel,
        engine: EngineModel,
        decide: Callable[[View], Plan],
        record: Callable[[float, Effects], None],
        start_s: float = 0.0,
    ) -> None:
        self.kernel = kernel
        self.now = start_s
        self._engine = engine
        self._decide = decide
        self._record = record
        self._next_round_s = -math.inf
        self._n_rounds = 0

    def run(
        self,
        arrivals: Iterable[TimedEvent],
        until_s: float = math.inf,
        *,
        max_rounds: float = math.inf,
    ) -> None:
        """Run until nothing is left to happen, the clock reaches `until_s`, or `max_rounds` rounds
        are done."""
        rest = iter(arrivals)
        arrival = next(rest, None)
        while self._n_rounds < max_rounds and (now := self._next_moment(arrival)) < until_s:
            self.now = max(self.now, now)
            arrival = self._arrive(arrival, rest)
            for event in self._engine.due(self.now):
                self.carry_out(self.kernel.apply(event, self.now))
            if self.kernel.next_timer_s() <= self.now:
                self.carry_out(self.kernel.apply(TimerFired(), self.now))
            if self.kernel.wants_round and self.now >= self._next_round_s:
                self._round()

    def _next_moment(self, arrival: TimedEvent | None) -> float:
        round_s = self._next_round_s if self.kernel.wants_round else math.inf
        timer_s = self.kernel.next_timer_s()
        arrival_s = arrival[0] if arrival else math.inf
        return min(arrival_s, self._engine.next_s(), max(timer_s, self.now), round_s)

    def _arrive(self, arrival: TimedEvent | None, rest: Iterator[TimedEvent]) -> TimedEvent | None:
        while arrival and arrival[0] <= self.now:
            self.carry_out(self.kernel.apply(arrival[1], self.now))
            arrival = next(rest, None)
        return arrival

    def _round(self) -> None:
        self._n_rounds += 1
        plan = self._decide(self.kernel.view(self.now))
        self._next_round_s = self.now + self.kernel.rules.round_interval_s
        self.carry_out(self.kernel.commit(plan, self.now))

    def carry_out(self, effects: Effects) -> None:
        """Record the effects of an event or a plan, then send their commands."""
        self._record(self.now, effects)
        for command in effects.commands:
            self._engine.apply(command, self.now)
