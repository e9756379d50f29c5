"""The second step of a round: the policy turns budgets into targets, pool by pool.

All calls of the policy are in this module. Sizes that do not depend on the policy are applied here,
equally for every policy: a size that the owner pinned looks to the policy like the only possible
size, and so does the size that a job of mode `fixed` started with. A cap after an unprofitable
growth looks like a limit.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from rota.core.estimation.service_time import as_if_holding
from rota.core.model.allocation import Allocation
from rota.core.model.job import Job, JobId, Mode
from rota.core.scheduling.divide import Shares
from rota.core.scheduling.policy_api import (
    Budget,
    Policy,
    Requeues,
    Targets,
    ask,
    policy_failures_as_bad_targets,
)
from rota.core.scheduling.view import View

REQUEUE_STEP_S = 0.1


@dataclass(frozen=True, slots=True)
class Sizes:
    """The number of workers of every job that should run, in the order in which the policy granted
    them, and the GPU type of these jobs."""

    targets: Targets
    gpu_types: Mapping[JobId, str]


def size(
    shares: Shares,
    policy: Policy,
    *,
    fits: Mapping[JobId, int] | None = None,
    unpinned: Collection[JobId] = (),
) -> Sizes:
    """Ask the policy once about each pool. `fits` caps jobs at what fits; the pinned size of jobs
    in `unpinned` is only their maximum."""
    limits = {**shares.limits, **fits} if fits else shares.limits
    targets: Targets = {}
    gpu_types: dict[JobId, str] = {}
    budgets = {
        gpu_type: Budget(float(n_gpus), shares.card_bytes[gpu_type], limits)
        for gpu_type, n_gpus in shares.gpus.items()
    }
    for pool in shares.pools:
        jobs = pool.jobs
        own = [job for job in jobs if job.pinned_workers or job.spec.mode is Mode.FIXED]
        if own:
            jobs = tuple(_pinned(job, shares, limits=limits, unpinned=unpinned) for job in jobs)
        if pool.gpu_type:
            budget = budgets[pool.gpu_type]
            sizes = ask(policy, jobs, budget=budget, now=shares.view.now)
        else:
            sizes = _without_gpus(jobs, limits)
        targets.update(sizes)
        gpu_types.update(dict.fromkeys(sizes, pool.gpu_type))
    return Sizes(targets, gpu_types)


def size_again(shares: Shares, policy: Policy, *, first: Sizes, fits: Mapping[JobId, int]) -> Sizes:
    """The second and last sizing of a round. A job whose pinned size fits in the first one but not
    in this one keeps its slots, because the policy is not asked whether it should shrink."""
    unpinned = unmet_pins(shares, first)
    sizes = size(shares, policy, fits=fits, unpinned=unpinned)
    view = shares.view
    unmet = unmet_pins(shares, sizes) - unpinned
    jobs = (job for job_id, job in view.jobs.items() if job_id in unmet)
    kept = {job.id: job.spec.units_in(view.planned[job.id]) for job in jobs}
    kept_types = {job_id: view.gpu_types[job_id] for job_id in kept}
    return Sizes({**sizes.targets, **kept}, {**sizes.gpu_types, **kept_types})


def unmet_pins(shares: Shares, sizes: Sizes) -> set[JobId]:
    """Running jobs that would stop because their pinned size does not fit."""
    planned = shares.view.planned
    return {
        job.id
        for job in shares.view.jobs.values()
        if job.pinned_workers is not None and job.id in planned and not sizes.targets.get(job.id)
    }


def _pinned(
    job: Job, shares: Shares, *, limits: Mapping[JobId, int], unpinned: Collection[JobId]
) -> Job:
    """The job with its pinned size as its only size, reduced to what fits, or as its maximum."""
    spec, pinned = job.spec, job.pinned_workers
    planned = shares.view.planned
    if pinned is None and spec.mode is Mode.FIXED and job.id in planned:
        pinned = spec.units_in(planned[job.id])
    if pinned is None or spec.min_workers == spec.max_workers:
        return job
    is_only = job.id not in unpinned
    most = max(min(pinned, limits.get(job.id, pinned)), spec.min_workers) if is_only else pinned
    least = most if is_only else spec.min_workers
    requested = min(max(spec.requested_workers, least), most)
    sized = replace(spec, min_workers=least, max_workers=most, requested_workers=requested)
    return replace(job, spec=sized)


def _without_gpus(jobs: tuple[Job, ...], limits: Mapping[JobId, int]) -> Targets:
    """Jobs without GPUs run at their requested size; placement checks CPUs and memory."""
    sizes = ((job, min(job.spec.requested_workers, limits.get(job.id, 10**9))) for job in jobs)
    return {job.id: workers for job, workers in sizes if workers >= job.spec.min_workers}


# -- feedback queues ------------------------------------------------------------------------------


def requeue(view: View, policy: Policy) -> tuple[View, dict[JobId, int], float]:
    """Move jobs to their current feedback queue. Returns also when the next job changes its
    queue."""
    if not isinstance(policy, Requeues):
        return view, {}, math.inf
    queues: dict[JobId, int] = {}
    jobs = dict(view.jobs)
    wake_at_s = math.inf
    with policy_failures_as_bad_targets():
        for job in view.jobs.values():
            due_s = policy.requeues_at(job, view.now)
            if due_s <= view.now:
                queues[job.id] = policy.queue_at(job, view.now)
                jobs[job.id] = replace(job, queue=queues[job.id])
                due_s = policy.requeues_at(jobs[job.id], view.now)
            wake_at_s = min(wake_at_s, due_s)
    # A policy that always asks for an immediate call would stop virtual time.
    wake_at_s = max(wake_at_s, view.now + REQUEUE_STEP_S)
    return replace(view, jobs=jobs), queues, wake_at_s


def next_requeue_s(view: View, policy: Policy, *, allocations: Mapping[JobId, Allocation]) -> float:
    """When the first job whose allocation changes will change its queue, computed as if it held the
    new allocation already. The time may be too early, which costs one extra round; without it, the
    change could be missed until the next event."""
    if not isinstance(policy, Requeues):
        return math.inf
    changed = (
        as_if_holding(job, allocation, now=view.now)
        for job in view.jobs.values()
        if (allocation := allocations.get(job.id)) and allocation != job.allocation
    )
    due_s = min((policy.requeues_at(job, view.now) for job in changed), default=math.inf)
    return max(due_s, view.now + REQUEUE_STEP_S)
