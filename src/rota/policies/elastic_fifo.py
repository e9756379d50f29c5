"""First in, first out, with growth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.model.job import Job
from rota.core.scheduling.policy_api import Budget, Targets
from rota.policies.greedy import at_minimum, grant_in_order, grow_in_turns


@dataclass(frozen=True, slots=True)
class ElasticFifo:
    """Gives each job its minimum in the order of submission, then distributes the rest one worker
    at a time.

    Only jobs that have their minimum grow, up to their limit, in the same order, in turns. From
    Voda (Hsieh and Lee, IC2E 2023), which calls it ElasticFIFO.
    """

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        targets = grant_in_order(jobs, budget, wanted=at_minimum)
        grow_in_turns(jobs, targets, budget=budget)
        return targets
