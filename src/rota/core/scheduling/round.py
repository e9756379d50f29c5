"""One round: divide, size, place, guard, check. Pure: a view goes in, a plan comes out."""

from __future__ import annotations

import math
from dataclasses import replace

from rota.core.defragment import defragment
from rota.core.divide import Division, divide
from rota.core.growth import next_cap_ends_s
from rota.core.guard import Guarded, guard
from rota.core.model import Allocation, Job, JobId, Queued, Running, n_gpus
from rota.core.placement import Placed, Wish, place, place_next_in_line
from rota.core.plan import Plan, check
from rota.core.policy import BadTargetsError, Policy, Requeues, Targets, blaming_it
from rota.core.reasons import Fragmented, Reason
from rota.core.refusals import next_refusal_ends_s
from rota.core.size import size
from rota.core.view import View

PLACEMENT_TRIES = 3
REQUEUE_STEP_S = 0.1


def decide(view: View, policy: Policy) -> Plan:
    """The plan for this view. One that breaks a rule is not followed: the last one stays."""
    queues: dict[JobId, int] = {}
    try:
        with blaming_it():
            view, queues, wake_at_s = _requeue(view, policy)
        division = divide(view)
        guarded, waits = _settle(view, division, policy=policy)
    except BadTargetsError as error:
        return Plan(view.planned, view.gpu_types, queues=queues, violations=(str(error),))
    gpu_types = {wish.job.id: wish.gpu_type for wish in guarded.wishes}
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
    """Jobs in the feedback queues where they belong by now, and when the next one changes."""
    if not isinstance(policy, Requeues):
        return view, {}, math.inf
    queues: dict[JobId, int] = {}
    jobs: list[Job] = []
    wake_at_s = math.inf
    for job in view.jobs:
        due_s = policy.requeues_at(job, view.now)
        if due_s <= view.now:
            queues[job.id] = policy.queue_at(job, view.now)
            job = replace(job, queue=queues[job.id])  # noqa: PLW2901 - the job as it is by now
            due_s = policy.requeues_at(job, view.now)
        jobs.append(job)
        # A policy that always wants to be asked again at once would never let time go on.
        wake_at_s = min(wake_at_s, max(due_s, view.now + REQUEUE_STEP_S))
    return replace(view, jobs=tuple(jobs)), queues, wake_at_s


def _next_requeue_s(view: View, guarded: Guarded, *, policy: Policy) -> float:
    """When the first of those who get something else than they hold changes its queue, as if it
    had that already. By then it may be too early, which costs a look; without this, nobody would
    look before something else happens."""
    if not isinstance(policy, Requeues):
        return math.inf
    due_s = [
        policy.requeues_at(_holding(wish.job, allocation, now=view.now), view.now)
        for wish in guarded.wishes
        if (allocation := guarded.allocations.get(wish.job.id))
        and allocation != wish.job.allocation
    ]
    return max(min(due_s, default=math.inf), view.now + REQUEUE_STEP_S)


def _holding(job: Job, allocation: Allocation, *, now: float) -> Job:
    service, phase = job.service, job.phase
    goes_on = job.is_active or (isinstance(phase, Queued) and phase.is_resizing)
    used_gpu_s = n_gpus(job.allocation) * (now - service.as_of_s) if job.is_active else 0.0
    last_gpu_s = service.last_gpu_s + used_gpu_s if goes_on else 0.0
    return replace(
        job,
        phase=Running(now, allocation, tuple(range(len(allocation)))),
        service=replace(service, as_of_s=now, last_gpu_s=last_gpu_s),
    )


def _settle(
    view: View, division: Division, *, policy: Policy
) -> tuple[Guarded, dict[JobId, Reason]]:
    """Size, place and guard. What finds no place has others moved for it, if that pays; else it
    goes back to be sized at what fits, three times; then whoever is next in line gets what is
    left."""
    limits = dict(division.limits)
    waits: dict[JobId, Reason] = {}
    n_tries = 0
    while True:
        n_tries += 1
        wishes = _wishes(division, size(division, policy, view=view, limits=limits))
        placed = place(view, wishes)
        if not placed.short:
            return guard(view, wishes, placed=placed), waits
        workers = {wish.job.id: wish.workers for wish in wishes}
        for job_id, fits in placed.short.items():
            waits[job_id] = Fragmented(workers[job_id], fits)
            limits[job_id] = min(fits, workers[job_id] - 1)
        if n_tries == 1:
            opened = defragment(view, guard(view, wishes, placed=placed), short=placed.short)
            if opened is not None:
                return _with_next_in_line(view, division, guarded=opened), waits
        if n_tries == PLACEMENT_TRIES:
            guarded = guard(view, wishes, placed=placed)
            return _with_next_in_line(view, division, guarded=guarded), waits


def _with_next_in_line(view: View, division: Division, *, guarded: Guarded) -> Guarded:
    """Whatever is left goes to those who still find a place, in their order."""
    in_line = _smallest_of_those_who_wait(view, division, placed=guarded.placed)
    placed = place_next_in_line(guarded.placed, in_line)
    found = [wish for wish in in_line if wish.job.id in placed.allocations]
    return replace(guarded, wishes=[*guarded.wishes, *found], placed=placed)


def _smallest_of_those_who_wait(view: View, division: Division, *, placed: Placed) -> list[Wish]:
    return [
        Wish(job, job.pinned_workers or job.spec.min_workers, pool.gpu_type)
        for pool in division.pools
        for job in pool.jobs
        if job.id not in placed.allocations
        and job.id not in placed.short
        and job.id not in view.planned
    ]


def _wishes(division: Division, targets: Targets) -> list[Wish]:
    """Targets as wishes, in the order in which the policy granted them."""
    known = {job.id: (job, pool.gpu_type) for pool in division.pools for job in pool.jobs}
    wishes: list[Wish] = []
    for job_id, workers in targets.items():
        job, gpu_type = known[job_id]
        if workers:
            wishes.append(Wish(job, workers, gpu_type))
    return wishes
