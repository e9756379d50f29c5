"""The largest total speed-up, by dynamic programming."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.core.model.allocation import TOLERANCE
from rota.core.model.job import Job
from rota.core.scheduling.policy_api import Budget, Targets
from rota.policies.greedy import at_minimum, grant_in_order

if TYPE_CHECKING:
    from rota.policies.knapsack import Floats, Option


@dataclass(frozen=True, slots=True)
class Ffdl:
    """Divides the GPUs so that the speed-ups of the running jobs add up to the maximum.

    Jobs get their minimum in the order of submission. A dynamic program finds the best use of the
    remaining GPUs; of two equal divisions it takes the one that gives less to later jobs. Saxena et
    al., "Effective Elastic Scaling of Deep Learning Workloads", MASCOTS 2020 (the optimiser of
    FfDL).
    """

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        from rota.policies.knapsack import best_extras

        targets = grant_in_order(jobs, budget, wanted=at_minimum)
        n_free = int(budget.free + TOLERANCE)
        if n_free > 0:
            runners = [job for job in jobs if job.id in targets and _has_whole_cost(job, budget)]
            extras = best_extras(_options(runners, budget, n_free=n_free), n_free)
            for job, extra in zip(runners, extras, strict=True):
                budget.grant(job, extra)
                targets[job.id] += extra
        return targets


def _has_whole_cost(job: Job, budget: Budget) -> bool:
    """Whether a worker costs whole GPUs. A GPU share has one size only and is not part of the
    division."""
    cost = budget.cost(job)
    return cost >= 1 and cost == int(cost)


def _options(jobs: Sequence[Job], budget: Budget, *, n_free: int) -> list[Option]:
    """The possible sizes of each job. A size beyond its table has no speed-up, and is never worth
    more than the minimum."""
    import numpy as np

    from rota.policies.knapsack import Option

    arrays: dict[int, tuple[tuple[float, ...], Floats]] = {}
    options: list[Option] = []
    for job in jobs:
        cost, least = int(budget.cost(job)), job.spec.min_workers
        most = least + min(budget.limit(job) - least, n_free // cost)
        table = job.speed.speedups(most)
        # Many jobs share one table. The entry also keeps the table, so that its id stays unique.
        if id(table) not in arrays:
            arrays[id(table)] = (table, np.array(table, dtype=np.float64))
        _, array = arrays[id(table)]
        speedups = array[least : most + 1]
        options.append(Option(speedups if len(speedups) else np.zeros(1), cost))
    return options
