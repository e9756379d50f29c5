"""The event loop over virtual time: facts, rounds and timers in the order of a clock that jumps.

The forecast and the simulator run the kernel with it; the daemon runs the same kernel on a real
clock. What decides and what runs the workers are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from rota.core.commands import Command
from rota.core.effects import Effects
from rota.core.events import Event, TimerFired
from rota.core.kernel import Kernel
from rota.core.plan import Plan
from rota.core.view import View

Arrival = tuple[float, Event]


class EngineModel(Protocol):
    """Runs workers in virtual time."""

    def apply(self, command: Command, now: float) -> None: ...

    def next_s(self) -> float:
        """When the next fact will happen; infinite if none will."""
        ...

    def due(self, now: float) -> Iterable[Event]:
        """The facts that have happened by now, each told once."""
        ...


class Replay:
    """One run. `decide` makes plans; `record` writes effects down before orders leave."""

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
        arrivals: Iterable[Arrival],
        until_s: float = math.inf,
        *,
        most_rounds: float = math.inf,
    ) -> None:
        """Until nothing is left to happen, the clock reaches `until_s`, or so many rounds are
        over."""
        rest = iter(arrivals)
        arrival = next(rest, None)
        while self._n_rounds < most_rounds and (now := self._next_moment(arrival)) < until_s:
            self.now = max(self.now, now)
            arrival = self._arrive(arrival, rest)
            for event in self._engine.due(self.now):
                self.carry_out(self.kernel.apply(event, self.now))
            if self.kernel.next_timer_s() <= self.now:
                self.carry_out(self.kernel.apply(TimerFired(), self.now))
            if self.kernel.wants_round and self.now >= self._next_round_s:
                self._round()

    def _next_moment(self, arrival: Arrival | None) -> float:
        round_s = self._next_round_s if self.kernel.wants_round else math.inf
        timer_s = self.kernel.next_timer_s()
        arrival_s = arrival[0] if arrival else math.inf
        return min(arrival_s, self._engine.next_s(), max(timer_s, self.now), round_s)

    def _arrive(self, arrival: Arrival | None, rest: Iterator[Arrival]) -> Arrival | None:
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
        """Write down what followed from a fact or a plan, then send its orders."""
        self._record(self.now, effects)
        for command in effects.commands:
            self._engine.apply(command, self.now)
