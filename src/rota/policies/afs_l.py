"""AFS-L: one worker at a time to the job that uses it best, by pairwise comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.core.estimation.remaining_time import remaining_s
from rota.core.model.job import Job
from rota.core.scheduling.policy_api import Budget, Targets
from rota.policies.greedy import at_minimum, grant_in_order

if TYPE_CHECKING:
    from rota.policies.afs_contest import Entrant


@dataclass(frozen=True, slots=True)
class AfsL:
    """Gives out workers one by one, each to the winner of a scan that compares jobs pairwise.

    Of two jobs the shorter one wins, unless the longer one gains so much from a worker that both
    finish sooner on average. AFS-L of Hwang et al., "Elastic Resource Sharing for Distributed Deep
    Learning", NSDI 2021, as Voda implements it.

    The scan ignores minimum sizes. If a job ends below its minimum, the scan is repeated with the
    whole minimum as the first grant of every job.
    """

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        from rota.policies.afs_contest import Entrant

        costless = [job for job in jobs if budget.cost(job) == 0]
        targets = grant_in_order(costless, budget, wanted=at_minimum)
        runners = [
            job
            for job in jobs
            if budget.cost(job) > 0 and budget.limit(job) >= job.spec.min_workers
        ]
        most = _most_workers(runners, budget) + 1
        entrants = [Entrant(remaining_s(job, now), job.speed.speedups(most), 1) for job in runners]
        held = _share_out(runners, budget, entrants=entrants)
        if any(0 < size < job.spec.min_workers for job, size in zip(runners, held, strict=True)):
            for job, size in zip(runners, held, strict=True):
                budget.refund(job, size)
            entrants = [
                Entrant(each.remaining_s, each.speedups, job.spec.min_workers)
                for job, each in zip(runners, entrants, strict=True)
            ]
            held = _share_out(runners, budget, entrants=entrants)
        return targets | {job.id: size for job, size in zip(runners, held, strict=True) if size}


def _most_workers(jobs: Sequence[Job], budget: Budget) -> int:
    """No job can get more workers than this number."""
    if not jobs:
        return 0
    by_budget = int(budget.free / min(map(budget.cost, jobs)))
    return min(by_budget, max(map(budget.limit, jobs)))


def _share_out(jobs: Sequence[Job], budget: Budget, *, entrants: Sequence[Entrant]) -> list[int]:
    """The workers of each job when the winner of every contest gets one worker, or its first
    grant."""
    from rota.policies.afs_contest import Contest

    contest = Contest(entrants)
    while not budget.is_spent and (winner := contest.winner()) is not None:
        job, held = jobs[winner], contest.held[winner]
        more = 1 if held else entrants[winner].first_grant
        can_pay = budget.grant(job, more)
        is_full = held + more >= budget.limit(job)
        contest.settle(more if can_pay else 0, leaves=is_full or not can_pay)
    return contest.held
