"""Shortest remaining job first, with growth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.model.job import Job
from rota.core.scheduling.policy_api import Budget, Targets
from rota.policies.greedy import at_minimum, grant_in_order, grow_in_turns
from rota.policies.srjf import shortest_first


@dataclass(frozen=True, slots=True)
class ElasticSrjf:
    """Gives each job its minimum, those with the least work left first, then distributes the rest
    in that order.

    Like `elastic-fifo`, in the order of `srjf`. From Voda (Hsieh and Lee, IC2E 2023), which calls
    it ElasticSRJF.
    """

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        in_order = shortest_first(jobs, now)
        targets = grant_in_order(in_order, budget, wanted=at_minimum)
        grow_in_turns(in_order, targets, budget=budget)
        return targets
