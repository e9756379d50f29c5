"""One worker at a time to the job that uses it best, by pairwise comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.model import Job
from rota.core.policy import Budget, Targets
from rota.core.progress import remaining_s
from rota.policies.contest import Contest, Entrant


@dataclass(frozen=True, slots=True)
class AfsL:
    """Gives out workers one by one, each to the winner of a scan that compares jobs pairwise.

    Of two jobs the shorter wins, unless the longer makes so much more of a worker that both end
    sooner on average. AFS-L of Hwang et al., "Elastic Resource Sharing for Distributed Deep
    Learning", NSDI 2021, as Voda builds it.

    The scan knows no minima. If somebody ends below the minimum, it is done again with the whole
    minimum as everybody's first grant.
    """

    def size(self, jobs: Sequence[Job], budget: Budget, now: float) -> Targets:
        runners = [job for job in jobs if budget.limit(job) >= job.spec.min_workers]
        remaining = [remaining_s(job, now) for job in runners]
        held = _share_out(runners, budget, remaining, [1] * len(runners))
        minima = [job.spec.min_workers for job in runners]
        if any(0 < size < least for size, least in zip(held, minima, strict=True)):
            for job, size in zip(runners, held, strict=True):
                budget.refund(job, size)
            held = _share_out(runners, budget, remaining, minima)
        return {job.id: size for job, size in zip(runners, held, strict=True) if size}


def _share_out(
    jobs: Sequence[Job], budget: Budget, remaining: Sequence[float], first_grants: Sequence[int]
) -> list[int]:
    """Workers for each job when every contest's winner gets one, or its first grant."""
    contest = Contest(
        [
            Entrant(left, job.speed.speedups, first)
            for job, left, first in zip(jobs, remaining, first_grants, strict=True)
        ]
    )
    while not budget.is_spent and (winner := contest.winner()) is not None:
        job, held = jobs[winner], contest.held[winner]
        more = 1 if held else first_grants[winner]
        can_pay = budget.grant(job, more)
        is_full = held + more >= budget.limit(job)
        contest.settle(more if can_pay else 0, leaves=is_full or not can_pay)
    return contest.held
