"""The most speed-up in total, by dynamic programming."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rota.core.model import Job
from rota.core.policy import TOLERANCE, Budget, Targets
from rota.policies.division import Option, best_extras
from rota.policies.walk import at_minimum, grant_in_order


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
            extras = best_extras(_options(runners, budget, room=room), room)
            for job, extra in zip(runners, extras, strict=True):
                budget.grant(job, extra)
                targets[job.id] += extra
        return targets


def _has_whole_cost(job: Job, budget: Budget) -> bool:
    """A share of a GPU has one size only, and takes no part in the division."""
    cost = budget.cost(job)
    return cost >= 1 and cost == int(cost)


def _options(jobs: Sequence[Job], budget: Budget, *, room: int) -> list[Option]:
    """What each job may have. A size beyond its table speeds nothing up, and is never worth more
    than the minimum."""
    by_id = {id(job.speed.speedups): job.speed.speedups for job in jobs}
    tables = {key: np.array(table, dtype=np.float64) for key, table in by_id.items()}
    options: list[Option] = []
    for job in jobs:
        cost, least = int(budget.cost(job)), job.spec.min_workers
        most = least + min(budget.limit(job) - least, room // cost)
        speedups = tables[id(job.speed.speedups)][least : most + 1]
        options.append(Option(speedups if len(speedups) else np.zeros(1), cost))
    return options
