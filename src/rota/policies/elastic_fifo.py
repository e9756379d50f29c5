"""First in, first out, with growth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.model import Job
from rota.core.policy import Budget, Targets
from rota.policies.round_robin import grow_in_turns
from rota.policies.walk import at_minimum, grant_in_order


@dataclass(frozen=True, slots=True)
class ElasticFifo:
    """Gives minima in the order of submission, then deals out the rest one worker at a time.

    Only jobs that hold their minimum grow, up to their limit, in the same order, round after
    round. From Voda (Hsieh and Lee, IC2E 2023), which calls it ElasticFIFO.
    """

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        targets = grant_in_order(jobs, budget, wanted=at_minimum)
        grow_in_turns(jobs, targets, budget=budget)
        return targets
