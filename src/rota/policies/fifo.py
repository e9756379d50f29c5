"""First in, first out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.model.job import Job
from rota.core.scheduling.policy_api import Budget, Targets
from rota.policies.greedy import at_minimum, grant_in_order


@dataclass(frozen=True, slots=True)
class Fifo:
    """Runs jobs at their minimum in the order of submission.

    A job that does not fit is skipped, so that small later jobs fill the gap; when an older job
    fits again, it displaces a younger one. The classic baseline, with the sizes of Voda's FIFO.
    """

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        return grant_in_order(jobs, budget, wanted=at_minimum)
