"""Shortest remaining job first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.estimation.remaining_time import remaining_s
from rota.core.model.job import Job
from rota.core.scheduling.policy_api import Budget, Targets
from rota.policies.greedy import at_minimum, grant_in_order


@dataclass(frozen=True, slots=True)
class Srjf:
    """Runs jobs at their minimum, those with the least work left first.

    Work left is in seconds on one worker, from the speed model. A job of unknown length comes last;
    equal jobs go by submission. The classic policy for a low mean completion time where lengths are
    known, with the sizes of Voda's SRJF.
    """

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        return grant_in_order(shortest_first(jobs, now), budget, wanted=at_minimum)


def shortest_first(jobs: Sequence[Job], now: float) -> list[Job]:
    return sorted(jobs, key=lambda job: remaining_s(job, now))
