"""Shortest remaining job first, with growth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.model import Job
from rota.core.policy import Budget, Targets
from rota.policies.round_robin import grow_in_turns
from rota.policies.srjf import shortest_first
from rota.policies.walk import at_minimum, grant_in_order


@dataclass(frozen=True, slots=True)
class ElasticSrjf:
    """Gives minima to those with the least work left, then deals out the rest in that order.

    As `elastic-fifo`, with the order of `srjf`. From Voda (Hsieh and Lee, IC2E 2023), which
    calls it ElasticSRJF.
    """

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        in_order = shortest_first(jobs, now)
        targets = grant_in_order(in_order, budget, wanted=at_minimum)
        grow_in_turns(in_order, targets, budget=budget)
        return targets
