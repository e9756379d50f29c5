"""One attempt's barrier: who has arrived, who runs where, and who has to come again.

No clock and no waiting in here: whoever asks is answered as things are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rota.daemon.membership import Roll
from rota_trainer.meetings import FAILED, FINISHED, LEFT, MET, OVER, Seat


class Turn(NamedTuple):
    generation: int
    number: int


class Offer(NamedTuple):
    """Where a worker's first process would wait for the others."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Met:
    turn: Turn
    members: tuple[int, ...]
    offer: Offer | None
    """Of the first of them; None if they met before the daemon was started."""

    def seat(self, worker: int) -> Seat | None:
        if self.offer is None:
            return None
        rank, size = self.members.index(worker), len(self.members)
        return Seat(MET, *self.turn, rank, size, self.offer.host, self.offer.port)


@dataclass(slots=True)
class Meeting:
    attempt: int
    roll: Roll
    arrived: dict[int, Offer] = field(default_factory=dict[int, Offer])
    """Who waits at the barrier of the newest generation."""
    running: dict[int, Turn] = field(default_factory=dict[int, Turn])
    """Who is in which turn, and would come if it were called."""
    met: Met | None = None
    """The newest turn of the newest generation, if it has met."""
    before: Met | None = None
    """The one that met last before this generation."""
    n_turns: int = 0
    """How many the newest generation has had, as far as anybody knows."""

    def update(self, roll: Roll) -> bool:
        """What the scheduler wants now; whether that is another generation."""
        is_new = roll.generation != self.roll.generation
        self.roll = roll
        for number in [number for number in self.running if number not in roll.held]:
            del self.running[number]
        if is_new:
            self.arrived.clear()
            self.before, self.met, self.n_turns = self.met or self.before, None, 0
        return is_new

    def arrive(self, worker: int, last: Turn, *, offer: Offer) -> Seat | None:
        """The seat of one who comes from the turn `last`; None while others have to come, who
        may by then have another generation to come for. A seat that was given and did not get
        through is given again."""
        roll = self.roll
        if worker not in roll.numbers:
            return Seat(LEFT, roll.generation) if self.met else None
        if self.met and last != self.met.turn and not self.arrived:
            seat = self.met.seat(worker)
            if seat is not None:
                return seat
        if any(roll.exits.get(number) == 0 for number in roll.numbers):
            return Seat(OVER, roll.generation)
        self._count(last)
        self.arrived[worker] = offer
        self.running.pop(worker, None)
        if self.arrived.keys() < set(roll.numbers):
            return None
        self._meet()
        return self.met.seat(worker) if self.met else None

    def note(self, worker: int, at: Turn, *, state: str) -> bool:
        """An agent tells where it is; whether all are found to be together. That is how a daemon
        that was started again learns it."""
        if state == FINISHED:
            self.running.pop(worker, None)
            return False
        if worker in self.arrived:
            return False
        self.running[worker] = at
        self._count(at)
        numbers = self.roll.numbers
        is_together = all(self.running.get(number) == at for number in numbers)
        if self.met or at.generation != self.roll.generation or not is_together:
            return False
        self.met = Met(at, numbers, None)
        return True

    def calls(self, worker: int, at: Turn, *, state: str) -> bool:
        """Whether an agent has to come to the barrier again. Who stays is called when everybody
        else is there or on the way, so that newcomers start while the others train; who leaves,
        when the others have met without it. Whose processes have failed is called at once."""
        roll = self.roll
        if at.generation == roll.generation:
            is_other = self.met is not None and self.met.turn != at
            return is_other or bool(self.arrived)
        if state == FAILED:
            return True
        if worker in roll.numbers:
            return all(number in self.arrived or number in self.running for number in roll.numbers)
        return self.met is not None

    def is_broken(self, at: Turn) -> bool:
        """Whether it is in vain to wait in this turn for a word of the others: one of them is
        gone, or has come to the barrier again."""
        is_left = bool(self.arrived) or (self.met is not None and self.met.turn != at)
        return is_left or any(self.roll.is_gone(number) for number in self._members(at))

    def _members(self, at: Turn) -> tuple[int, ...]:
        for met in (self.met, self.before):
            if met is not None and met.turn == at:
                return met.members
        return self.roll.numbers if at.generation == self.roll.generation else ()

    def _meet(self) -> None:
        roll = self.roll
        self.n_turns += 1
        turn_ = Turn(roll.generation, self.n_turns)
        self.met = Met(turn_, roll.numbers, self.arrived[roll.numbers[0]])
        self.running |= dict.fromkeys(roll.numbers, turn_)
        self.arrived.clear()

    def _count(self, at: Turn) -> None:
        if at.generation == self.roll.generation:
            self.n_turns = max(self.n_turns, at.number)
