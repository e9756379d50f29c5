"""The second step of a round: the policy turns budgets into targets, pool by pool.

Sizes that do not depend on the policy are applied here, equally for every policy: a size that the
owner pinned looks to the policy like the only possible size, and a cap after an unprofitable growth
looks like a limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rota.core.lifecycle.size_caps import cap_of
from rota.core.model.job import Job, JobId
from rota.core.scheduling.leftovers import Leftovers
from rota.core.scheduling.policy_api import Budget, Policy, SharesLeftovers, Targets, ask
from rota.core.scheduling.quota import Division, Pool
from rota.core.scheduling.view import View


def size(division: Division, policy: Policy, *, view: View, limits: Mapping[JobId, int]) -> Targets:
    """The number of workers of every job that should run. `limits` caps jobs at what fits."""
    targets: Targets = {}
    limits = _with_caps(view, limits)
    budgets = {
        gpu_type: Budget(float(n_gpus), division.card_bytes[gpu_type], limits)
        for gpu_type, n_gpus in division.gpus.items()
    }
    shares = isinstance(policy, SharesLeftovers) and policy.shares_leftovers
    leftovers = Leftovers(view) if shares else None
    for pool in division.pools:
        if not pool.gpu_type:
            jobs = tuple(_pinned(job, limits) for job in pool.jobs)
            targets.update(_without_gpus(jobs, limits))
            continue
        budget = budgets[pool.gpu_type]
        asked, sizes = _ask_about(pool, policy, view=view, budget=budget, limits=limits)
        if leftovers is not None:
            leftovers.settle(asked, sizes, budget=budget)
        targets.update(sizes)
    if leftovers is not None:
        leftovers.offer(targets, budgets)
    return targets


def _with_caps(view: View, limits: Mapping[JobId, int]) -> Mapping[JobId, int]:
    caps = {job.id: cap for job in view.jobs if (cap := cap_of(job, view.now)) is not None}
    if not caps:
        return limits
    return {**limits, **{job_id: min(cap, limits.get(job_id, cap)) for job_id, cap in caps.items()}}


def _ask_about(
    pool: Pool, policy: Policy, *, view: View, budget: Budget, limits: Mapping[JobId, int]
) -> tuple[Pool, Targets]:
    """The policy's targets, and the jobs as the policy saw them. A running job is not stopped
    because its pinned size does not fit: it then grows as far as possible."""
    if all(job.pinned_workers is None for job in pool.jobs):
        return pool, ask(policy, pool.jobs, budget=budget, now=view.now)
    free = budget.free
    asked = Pool(pool.gpu_type, tuple(_pinned(job, limits) for job in pool.jobs))
    sizes = ask(policy, asked.jobs, budget=budget, now=view.now)
    halted = {job.id for job in pool.jobs if job.id in view.planned and job.id not in sizes}
    wanting = {job.id for job in pool.jobs if job.pinned_workers is not None} & halted
    if not wanting:
        return asked, sizes
    budget.free = free
    asked = Pool(
        pool.gpu_type,
        tuple(
            _no_more_than_pinned(job) if job.id in wanting else _pinned(job, limits)
            for job in pool.jobs
        ),
    )
    return asked, ask(policy, asked.jobs, budget=budget, now=view.now)


def _pinned(job: Job, limits: Mapping[JobId, int]) -> Job:
    """The job with its pinned size as its only size, reduced to what fits."""
    if job.pinned_workers is None:
        return job
    workers = min(job.pinned_workers, limits.get(job.id, job.pinned_workers))
    workers = max(workers, job.spec.min_workers)
    return _sized(job, least=workers, most=workers)


def _no_more_than_pinned(job: Job) -> Job:
    """The job with its pinned size as its maximum."""
    assert job.pinned_workers is not None
    return _sized(job, least=job.spec.min_workers, most=job.pinned_workers)


def _sized(job: Job, *, least: int, most: int) -> Job:
    requested = min(max(job.spec.requested_workers, least), most)
    spec = replace(job.spec, min_workers=least, max_workers=most, requested_workers=requested)
    return replace(job, spec=spec)


def _without_gpus(jobs: tuple[Job, ...], limits: Mapping[JobId, int]) -> Targets:
    """Jobs without GPUs run at their requested size; placement checks CPUs and memory."""
    sizes = ((job, min(job.spec.requested_workers, limits.get(job.id, 10**9))) for job in jobs)
    return {job.id: workers for job, workers in sizes if workers >= job.spec.min_workers}
