"""Shortest remaining job first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.model import Job
from rota.core.policy import Budget, Targets
from rota.core.progress import remaining_s
from rota.policies.walk import at_minimum, grant_in_order


@dataclass(frozen=True, slots=True)
class Srjf:
    """Runs jobs at their minimum, those with the least work left first.

    Work left is seconds on one worker, as the speed model knows it; a job of unknown length comes
    last, and equals go by submission. The classic answer to mean completion time where lengths
    are known; the sizes are those of Voda's SRJF.
    """

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        return grant_in_order(shortest_first(jobs, now), budget, wanted=at_minimum)


def shortest_first(jobs: Sequence[Job], now: float) -> list[Job]:
    return sorted(jobs, key=lambda job: remaining_s(job, now))
