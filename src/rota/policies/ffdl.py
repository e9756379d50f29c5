"""The most speed-up in total, by dynamic programming."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rota.core.model import Job
from rota.core.policy import TOLERANCE, Budget, Targets
from rota.policies.walk import at_minimum, grant_in_order

Floats = NDArray[np.float64]
Counts = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Ffdl:
    """Divides the GPUs so that the speed-ups of the jobs that run add up to the most.

    Minima go out in the order of submission; a dynamic programme finds the best use of what is
    left, and of two equal divisions takes the one that gives less to later jobs. Saxena et al.,
    "Effective Elastic Scaling of Deep Learning Workloads", MASCOTS 2020 (the optimiser of FfDL).
    """

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        targets = grant_in_order(jobs, budget, wanted=at_minimum)
        room = int(budget.free + TOLERANCE)
        if room > 0:
            runners = [job for job in jobs if job.id in targets and _has_whole_cost(job, budget)]
            extras = _best_extras(runners, budget, room=room)
            for job, extra in zip(runners, extras, strict=True):
                budget.grant(job, extra)
                targets[job.id] += extra
        return targets


def _has_whole_cost(job: Job, budget: Budget) -> bool:
    """A share of a GPU has one size only, and takes no part in the division."""
    cost = budget.cost(job)
    return cost >= 1 and cost == int(cost)


def _best_extras(jobs: Sequence[Job], budget: Budget, *, room: int) -> list[int]:
    """Workers beyond its minimum for each job.

    `best[x]` is the most that the jobs so far reach with at most x GPUs beyond their minima. This
    is the paper's table without the columns that no division can reach.
    """
    costs = [int(budget.cost(job)) for job in jobs]
    best: Floats = np.zeros(room + 1)
    choices: list[Counts] = []
    for job, cost in zip(jobs, costs, strict=True):
        most_extra = min(budget.limit(job) - job.spec.min_workers, room // cost)
        values = _values(job, most_extra, cost=cost)
        best, choice = _with_job(best, values, cost=cost)
        choices.append(choice)
    extras: list[int] = []
    for choice, cost in zip(reversed(choices), reversed(costs), strict=True):
        extras.append(int(choice[room]))
        room -= extras[-1] * cost
    return extras[::-1]


def _values(job: Job, most_extra: int, *, cost: int) -> list[float]:
    """Speed at the minimum and at each size above it, in GPUs' worth: a worker of two GPUs that
    is twice as fast on two workers counts as four."""
    least = job.spec.min_workers
    return [cost * job.speed.speedup(least + extra) for extra in range(most_extra + 1)]


def _with_job(best: Floats, values: Sequence[float], *, cost: int) -> tuple[Floats, Counts]:
    """The table with one more job, and how much beyond its minimum the job takes at each place.

    Only a strictly better size replaces a smaller one, and none is better than a smaller one of
    the same value, since `best` never falls.
    """
    with_job = values[0] + best
    choice = np.zeros(len(best), dtype=np.int32)
    highest = values[0]
    for extra, value in enumerate(values[1:], start=1):
        if value <= highest:
            continue
        highest = value
        shift = extra * cost
        rival = value + best[:-shift]
        is_better = rival > with_job[shift:]
        np.copyto(with_job[shift:], rival, where=is_better)
        np.copyto(choice[shift:], extra, where=is_better)
    return with_job, choice
