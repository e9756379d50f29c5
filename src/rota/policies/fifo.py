"""First in, first out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.model import Job
from rota.core.policy import Budget, Targets
from rota.policies.walk import at_minimum, grant_in_order


@dataclass(frozen=True, slots=True)
class Fifo:
    """Runs jobs at their minimum in the order of submission.

    A job that does not fit is passed by, so small later jobs fill the gap; an older job that
    fits again displaces a younger one. The classic baseline; the sizes are those of Voda's FIFO.
    """

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        return grant_in_order(jobs, budget, wanted=at_minimum)
