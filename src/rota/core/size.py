"""The second step of a round: the policy turns budgets into targets, pool by pool."""

from __future__ import annotations

from collections.abc import Mapping

from rota.core.divide import Division, Pool
from rota.core.leftovers import Leftovers
from rota.core.model import Job, JobId
from rota.core.policy import BadTargetsError, Budget, Policy, SharesLeftovers, Targets
from rota.core.view import View


def size(division: Division, policy: Policy, *, view: View, limits: Mapping[JobId, int]) -> Targets:
    """Workers for every job that should run. `limits` caps jobs at what was found to fit."""
    targets: Targets = {}
    budgets = {
        gpu_type: Budget(float(n_gpus), division.card_bytes[gpu_type], limits)
        for gpu_type, n_gpus in division.gpus.items()
    }
    shares = isinstance(policy, SharesLeftovers) and policy.shares_leftovers
    leftovers = Leftovers(view) if shares else None
    for pool in division.pools:
        if not pool.gpu_type:
            targets.update(_without_gpus(pool.jobs, limits))
            continue
        budget = budgets[pool.gpu_type]
        sizes = policy.size(pool.jobs, budget, now=view.now)
        _check_names(sizes, pool)
        if leftovers is not None:
            leftovers.settle(pool, sizes, budget=budget)
        targets.update(sizes)
    if leftovers is not None:
        leftovers.offer(targets, budgets)
    return targets


def _check_names(sizes: Targets, pool: Pool) -> None:
    strangers = sizes.keys() - {job.id for job in pool.jobs} if sizes else ()
    if strangers:
        raise BadTargetsError(f"it sized {min(strangers)}, which it was not asked about")


def _without_gpus(jobs: tuple[Job, ...], limits: Mapping[JobId, int]) -> Targets:
    """Jobs without GPUs run at the size they asked for; CPUs and memory are placement's."""
    sizes = ((job, min(job.spec.requested_workers, limits.get(job.id, 10**9))) for job in jobs)
    return {job.id: workers for job, workers in sizes if workers >= job.spec.min_workers}
