"""The second step of a round: the policy turns budgets into targets, pool by pool."""

from __future__ import annotations

from collections.abc import Mapping

from rota.core.divide import Division, Pool
from rota.core.model import Job, JobId
from rota.core.policy import BadTargetsError, Budget, Policy, Targets


def size(division: Division, policy: Policy, *, now: float, limits: Mapping[JobId, int]) -> Targets:
    """Workers for every job that should run. `limits` caps jobs at what was found to fit."""
    targets: Targets = {}
    budgets = {
        gpu_type: Budget(float(n_gpus), division.card_bytes[gpu_type], limits)
        for gpu_type, n_gpus in division.gpus.items()
    }
    for pool in division.pools:
        if pool.gpu_type:
            sizes = policy.size(pool.jobs, budgets[pool.gpu_type], now=now)
            _check_names(sizes, pool)
            targets.update(sizes)
        else:
            targets.update(_without_gpus(pool.jobs, limits))
    return targets


def _check_names(sizes: Targets, pool: Pool) -> None:
    strangers = sizes.keys() - {job.id for job in pool.jobs} if sizes else ()
    if strangers:
        raise BadTargetsError(f"it sized {min(strangers)}, which it was not asked about")


def _without_gpus(jobs: tuple[Job, ...], limits: Mapping[JobId, int]) -> Targets:
    """Jobs without GPUs run at the size they asked for; CPUs and memory are placement's."""
    sizes = ((job, min(job.spec.requested_workers, limits.get(job.id, 10**9))) for job in jobs)
    return {job.id: workers for job, workers in sizes if workers >= job.spec.min_workers}
