"""The workers of a command, each with its rank and its slot. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.model.allocation import Slot
from rota.core.model.commands import ChangeMembership, StartWorkers
from rota.engines.interface import WorkerId


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """One worker: its rank in the job, and its slot on a node."""

    worker: WorkerId
    generation: int
    rank: int
    size: int
    slot: Slot


def placements(command: StartWorkers | ChangeMembership) -> list[PodPlacement]:
    """One for each slot, in rank order."""
    first = range(len(command.allocation))
    numbers = command.workers if isinstance(command, ChangeMembership) else first
    return [
        PodPlacement(
            WorkerId(command.job_id, command.attempt, number),
            command.generation,
            rank,
            len(command.allocation),
            slot,
        )
        for rank, (number, slot) in enumerate(zip(numbers, command.allocation, strict=True))
    ]
