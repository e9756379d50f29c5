"""The workers of a command, each with its rank and its slot. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.model.allocation import Allocation, Slot
from rota.core.model.commands import ChangeMembership, StartWorkers
from rota.engines.interface import WorkerId


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """One worker: its rank in the job, and the slots of all workers, in the order of ranks."""

    worker: WorkerId
    generation: int
    rank: int
    allocation: Allocation

    @property
    def slot(self) -> Slot:
        return self.allocation[self.rank]


def placements(command: StartWorkers | ChangeMembership) -> list[PodPlacement]:
    """One for each slot, in rank order."""
    first = range(len(command.allocation))
    numbers = command.workers if isinstance(command, ChangeMembership) else first
    return [
        PodPlacement(
            WorkerId(command.job_id, command.attempt, number),
            command.generation,
            rank,
            command.allocation,
        )
        for rank, number in enumerate(numbers)
    ]
