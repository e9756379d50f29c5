"""One scheduling round: divide, size, place, guard, check. Pure: a view goes in, a plan comes
out."""

from __future__ import annotations

import math
from dataclasses import replace

from rota.core.explain.reasons import Fragmented, Reason
from rota.core.lifecycle.node_refusals import next_refusal_ends_s
from rota.core.lifecycle.size_caps import next_cap_ends_s
from rota.core.model.allocation import Allocation, n_gpus
from rota.core.model.job import Job, JobId, Queued, Running
from rota.core.placement.placer import PlacementRequest, PlacementResult, place, place_waiting
from rota.core.scheduling.defragment import defragment
from rota.core.scheduling.plan import Plan, check
from rota.core.scheduling.policy_api import (
    BadTargetsError,
    Policy,
    Requeues,
    Targets,
    policy_failures_as_bad_targets,
)
from rota.core.scheduling.preemption import Guarded, guard
from rota.core.scheduling.quota import Division, divide
from rota.core.scheduling.sizing import size
from rota.core.scheduling.view import View

PLACEMENT_TRIES = 3
REQUEUE_STEP_S = 0.1


def decide(view: View, policy: Policy) -> Plan:
    """The plan for this view. If the new plan breaks a rule, the last plan stays."""
    queues: dict[JobId, int] = {}
    try:
        with policy_failures_as_bad_targets():
            view, queues, wake_at_s = _requeue(view, policy)
        division = divide(view)
        guarded, waits = _size_and_place(view, division, policy=policy)
    except BadTargetsError as error:
        return Plan(view.planned, view.gpu_types, queues=queues, violations=(str(error),))
    gpu_types = {request.job.id: request.gpu_type for request in guarded.requests}
    waits = {**division.impossible, **waits, **guarded.waits}
    plan = Plan(
        allocations=guarded.allocations,
        gpu_types={job_id: gpu_types[job_id] for job_id in guarded.allocations},
        queues=queues,
        waits={job_id: why for job_id, why in waits.items() if job_id not in guarded.allocations},
        wake_at_s=min(
            wake_at_s,
            guarded.wake_at_s,
            _next_requeue_s(view, guarded, policy=policy),
            next_cap_ends_s(view.jobs, view.now),
            next_refusal_ends_s(view.jobs),
        ),
    )
    violations = check(plan, view)
    if not violations:
        return plan
    return replace(plan, allocations=view.planned, gpu_types=view.gpu_types, violations=violations)


def _requeue(view: View, policy: Policy) -> tuple[View, dict[JobId, int], float]:
    """Move jobs to their current feedback queue. Returns also when the next job changes its
    queue."""
    if not isinstance(policy, Requeues):
        return view, {}, math.inf
    queues: dict[JobId, int] = {}
    jobs: list[Job] = []
    wake_at_s = math.inf
    for job in view.jobs:
        due_s = policy.requeues_at(job, view.now)
        if due_s <= view.now:
            queues[job.id] = policy.queue_at(job, view.now)
            job = replace(job, queue=queues[job.id])  # noqa: PLW2901 - the job in its new queue
            due_s = policy.requeues_at(job, view.now)
        jobs.append(job)
        # A policy that always asks for an immediate call would stop virtual time.
        wake_at_s = min(wake_at_s, max(due_s, view.now + REQUEUE_STEP_S))
    return replace(view, jobs=tuple(jobs)), queues, wake_at_s


def _next_requeue_s(view: View, guarded: Guarded, *, policy: Policy) -> float:
    """When the first job whose allocation changes will change its queue, computed as if it held the
    new allocation already. The time may be too early, which costs one extra round; without it, the
    change could be missed until the next event."""
    if not isinstance(policy, Requeues):
        return math.inf
    due_s = [
        policy.requeues_at(_as_if_holding(request.job, allocation, now=view.now), view.now)
        for request in guarded.requests
        if (allocation := guarded.allocations.get(request.job.id))
        and allocation != request.job.allocation
    ]
    return max(min(due_s, default=math.inf), view.now + REQUEUE_STEP_S)


def _as_if_holding(job: Job, allocation: Allocation, *, now: float) -> Job:
    service, phase = job.service, job.phase
    goes_on = job.is_active or (isinstance(phase, Queued) and phase.is_resizing)
    used_gpu_s = n_gpus(job.allocation) * (now - service.as_of_s) if job.is_active else 0.0
    last_gpu_s = service.last_gpu_s + used_gpu_s if goes_on else 0.0
    return replace(
        job,
        phase=Running(now, allocation, tuple(range(len(allocation)))),
        service=replace(service, as_of_s=now, last_gpu_s=last_gpu_s),
    )


def _size_and_place(
    view: View, division: Division, *, policy: Policy
) -> tuple[Guarded, dict[JobId, Reason]]:
    """Size, place and guard. For a job without a place, other jobs are moved if that pays. Else the
    job is sized again with a limit of what fits, up to three times. Then the next jobs in the queue
    get what is left."""
    limits = dict(division.limits)
    waits: dict[JobId, Reason] = {}
    n_tries = 0
    while True:
        n_tries += 1
        requests = _placement_requests(division, size(division, policy, view=view, limits=limits))
        placed = place(view, requests)
        if not placed.short:
            return guard(view, requests, placed=placed), waits
        workers = {request.job.id: request.workers for request in requests}
        for job_id, fits in placed.short.items():
            waits[job_id] = Fragmented(workers[job_id], fits)
            limits[job_id] = min(fits, workers[job_id] - 1)
        if n_tries == 1:
            opened = defragment(view, guard(view, requests, placed=placed), short=placed.short)
            if opened is not None:
                return _backfill(view, division, guarded=opened), waits
        if n_tries == PLACEMENT_TRIES:
            guarded = guard(view, requests, placed=placed)
            return _backfill(view, division, guarded=guarded), waits


def _backfill(view: View, division: Division, *, guarded: Guarded) -> Guarded:
    """Place waiting jobs that still fit on the remaining GPUs, in their order."""
    waiting = _minimum_requests_of_waiting(view, division, placed=guarded.placed)
    placed = place_waiting(guarded.placed, waiting)
    found = [request for request in waiting if request.job.id in placed.allocations]
    return replace(guarded, requests=[*guarded.requests, *found], placed=placed)


def _minimum_requests_of_waiting(
    view: View, division: Division, *, placed: PlacementResult
) -> list[PlacementRequest]:
    return [
        PlacementRequest(job, job.pinned_workers or job.spec.min_workers, pool.gpu_type)
        for pool in division.pools
        for job in pool.jobs
        if job.id not in placed.allocations
        and job.id not in placed.short
        and job.id not in view.planned
    ]


def _placement_requests(division: Division, targets: Targets) -> list[PlacementRequest]:
    """The targets as placement requests, in the order in which the policy granted them."""
    known = {job.id: (job, pool.gpu_type) for pool in division.pools for job in pool.jobs}
    requests: list[PlacementRequest] = []
    for job_id, workers in targets.items():
        job, gpu_type = known[job_id]
        if workers:
            requests.append(PlacementRequest(job, workers, gpu_type))
    return requests
