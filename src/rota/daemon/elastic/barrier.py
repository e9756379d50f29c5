"""The barrier of torchrun agents in one attempt: which of them arrived, run, or must join again.

Pure state without a clock and without waiting; `barrier_session` adds both. A *round* is one
meeting of all members of a generation (field `turn` on the wire).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rota.daemon.elastic.membership import GenerationRoster
from rota_trainer.torchrun.messages import FAILED, FINISHED, LEFT, MET, OVER, RendezvousAssignment


class RendezvousRound(NamedTuple):
    generation: int
    number: int


class MasterAddress(NamedTuple):
    """The address where the first process of rank 0 waits for the others."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BarrierResult:
    """A round in which all members have met."""

    round: RendezvousRound
    members: tuple[int, ...]
    master: MasterAddress | None
    """The address of the first member; None if they met before the daemon was restarted."""

    def assignment_for(self, worker: int) -> RendezvousAssignment | None:
        if self.master is None:
            return None
        rank, size = self.members.index(worker), len(self.members)
        return RendezvousAssignment(
            MET, *self.round, rank, size, self.master.host, self.master.port
        )


@dataclass(slots=True)
class RendezvousBarrier:
    attempt: int
    roster: GenerationRoster
    arrived: dict[int, MasterAddress] = field(default_factory=dict[int, MasterAddress])
    """The agents that wait at the barrier of the newest generation."""
    running: dict[int, RendezvousRound] = field(default_factory=dict[int, RendezvousRound])
    """The round of each agent whose processes run and that can join again."""
    result: BarrierResult | None = None
    """The newest round of the newest generation; None if it has not met."""
    previous: BarrierResult | None = None
    """The last round that met before this generation."""
    n_rounds: int = 0
    """The number of known rounds of the newest generation."""

    def update(self, roster: GenerationRoster) -> bool:
        """Set the members that the scheduler wants; returns whether the generation is new."""
        is_new = roster.generation != self.roster.generation
        self.roster = roster
        for number in [number for number in self.running if number not in roster.held]:
            del self.running[number]
        if is_new:
            self.arrived.clear()
            self.previous, self.result, self.n_rounds = self.result or self.previous, None, 0
        return is_new

    def arrive(
        self, worker: int, last: RendezvousRound, *, master: MasterAddress
    ) -> RendezvousAssignment | None:
        """Register an agent that comes from the round `last`; returns its assignment, or None while
        members are missing. If a response with an assignment was lost, the agent asks again and
        gets the same assignment."""
        roster = self.roster
        if worker not in roster.numbers:
            return RendezvousAssignment(LEFT, roster.generation) if self.result else None
        if self.result and last != self.result.round and not self.arrived:
            assignment = self.result.assignment_for(worker)
            if assignment is not None:
                return assignment
        if any(roster.exits.get(number) == 0 for number in roster.numbers):
            return RendezvousAssignment(OVER, roster.generation)
        self._count(last)
        self.arrived[worker] = master
        self.running.pop(worker, None)
        if self.arrived.keys() < set(roster.numbers):
            return None
        self._meet()
        return self.result.assignment_for(worker) if self.result else None

    def note(self, worker: int, at: RendezvousRound, *, state: str) -> bool:
        """Record the round of a running agent; returns whether this shows that all members are in
        the same round. A restarted daemon learns the current round this way."""
        if state == FINISHED:
            self.running.pop(worker, None)
            return False
        if worker in self.arrived:
            return False
        self.running[worker] = at
        self._count(at)
        numbers = self.roster.numbers
        is_together = all(self.running.get(number) == at for number in numbers)
        if self.result or at.generation != self.roster.generation or not is_together:
            return False
        self.result = BarrierResult(at, numbers, None)
        return True

    def must_rejoin(self, worker: int, at: RendezvousRound, *, state: str) -> bool:
        """Whether an agent must join the barrier again.

        A member that stays is called when all others have arrived or run, so that new agents start
        while the others train. A member that leaves is called after the others have met without it.
        An agent whose processes have failed is called immediately."""
        roster = self.roster
        if at.generation == roster.generation:
            is_other = self.result is not None and self.result.round != at
            return is_other or bool(self.arrived)
        if state == FAILED:
            return True
        if worker in roster.numbers:
            return all(
                number in self.arrived or number in self.running for number in roster.numbers
            )
        return self.result is not None

    def is_broken(self, at: RendezvousRound) -> bool:
        """Whether a round cannot complete any more: a member is gone, or has joined the barrier
        again."""
        is_left = bool(self.arrived) or (self.result is not None and self.result.round != at)
        return is_left or any(self.roster.is_gone(number) for number in self._members(at))

    def _members(self, at: RendezvousRound) -> tuple[int, ...]:
        for met in (self.result, self.previous):
            if met is not None and met.round == at:
                return met.members
        return self.roster.numbers if at.generation == self.roster.generation else ()

    def _meet(self) -> None:
        roster = self.roster
        self.n_rounds += 1
        round_ = RendezvousRound(roster.generation, self.n_rounds)
        self.result = BarrierResult(round_, roster.numbers, self.arrived[roster.numbers[0]])
        self.running |= dict.fromkeys(roster.numbers, round_)
        self.arrived.clear()

    def _count(self, at: RendezvousRound) -> None:
        if at.generation == self.roster.generation:
            self.n_rounds = max(self.n_rounds, at.number)
