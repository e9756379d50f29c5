"""One scheduling round. Pure: a view goes in, a plan comes out.

    shares = divide(view)            rank the jobs, sort them into pools
    sizes  = size(shares, policy)    the policy sizes each pool
    wanted = place_sizes(...)        judge the changes, place those that are worth their cost
    wanted = _settle(wanted, ...)    move other jobs for what does not fit, or size it again
    check(plan, view)                a plan that breaks a rule is dropped

A round asks the policy at most twice about each pool and places at most three times. What the
policy decides is final: a job that the policy does not size waits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rota.core.explain.reasons import Fragmented, Reason
from rota.core.lifecycle.node_refusals import next_refusal_ends_s
from rota.core.lifecycle.size_caps import next_cap_ends_s
from rota.core.model.allocation import TOLERANCE
from rota.core.model.job import JobId
from rota.core.placement.placer import Placement, place
from rota.core.placement.wish import Wish
from rota.core.scheduling.defragment import defragment, next_starvation_s
from rota.core.scheduling.divide import Shares, divide
from rota.core.scheduling.plan import Plan, check
from rota.core.scheduling.policy_api import BadTargetsError, Policy
from rota.core.scheduling.preemption import Judged, judge, wishes_to_place
from rota.core.scheduling.sizing import Sizes, next_requeue_s, requeue, size, size_again, unmet_pins
from rota.core.scheduling.view import View


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the jobs should hold, with the reasons of jobs that wait."""

    sizes: Sizes
    judged: Judged
    placed: Placement
    waits: dict[JobId, Reason]
    """Why wishes do not fit: the GPUs are scattered, or a protected job keeps them."""
    fragmented: tuple[Wish, ...]
    """The wishes that do not fit because the free GPUs are scattered."""


def decide(view: View, policy: Policy) -> Plan:
    """The plan for this view. If the new plan breaks a rule, the last plan stays."""
    queues: dict[JobId, int] = {}
    try:
        view, queues, wake_at_s = requeue(view, policy)
        shares = divide(view)
        sizes = size(shares, policy)
        wanted = place_sizes(shares, sizes)
        wanted = _settle(wanted, shares, policy=policy)
    except BadTargetsError as error:
        return Plan(view.planned, view.gpu_types, queues=queues, violations=(str(error),))
    allocations = wanted.placed.allocations
    waits = {**shares.impossible, **wanted.waits}
    gpu_types = {**view.gpu_types, **wanted.sizes.gpu_types}
    plan = Plan(
        allocations=allocations,
        gpu_types={job_id: gpu_types[job_id] for job_id in allocations},
        queues=queues,
        waits={job_id: why for job_id, why in waits.items() if job_id not in allocations},
        wake_at_s=min(
            wake_at_s,
            wanted.judged.wake_at_s,
            next_starvation_s((wish.job for wish in wanted.fragmented), view),
            next_requeue_s(view, policy, allocations=allocations),
            next_cap_ends_s(view.jobs.values(), view.now),
            next_refusal_ends_s(view.jobs.values()),
        ),
    )
    violations = check(plan, view)
    if not violations:
        return plan
    return replace(plan, allocations=view.planned, gpu_types=view.gpu_types, violations=violations)


def place_sizes(shares: Shares, sizes: Sizes) -> Wanted:
    """Judge the changes and place those that are worth their cost."""
    view = shares.view
    judged = judge(shares, sizes)
    wishes = wishes_to_place(judged, view)
    placed = place(wishes, capacity=view.free, planned=view.planned)
    for job_id in (wish.job.id for wish, _ in judged.verdicts if not wish.held):
        if job_id in placed.allocations:  # Jobs start in the order of the policy.
            placed.allocations[job_id] = placed.allocations.pop(job_id)
    short = [wish for wish in wishes if wish.job.id in placed.short]
    waits = {wish.job.id: _wait_reason(wish, judged, placed=placed) for wish in short}
    fragmented = tuple(wish for wish in short if isinstance(waits[wish.job.id], Fragmented))
    return Wanted(sizes, judged, placed, waits, fragmented)


def _wait_reason(wish: Wish, judged: Judged, *, placed: Placement) -> Reason:
    """Why a wish does not fit."""
    gpu_type, left = wish.demand.gpu_type, placed.left
    needed = wish.n_missing * wish.demand.n_gpus(left.card_bytes)
    blocking = judged.blocking.get(gpu_type)
    if blocking is not None and needed > left.free_gpus(gpu_type) + TOLERANCE:
        return blocking
    spec = wish.job.spec
    return Fragmented(spec.gpus_of(wish.units), spec.gpus_of(placed.short[wish.job.id]))


def _settle(wanted: Wanted, shares: Shares, *, policy: Policy) -> Wanted:
    """For the first job without a place, other jobs are moved if that pays. Else the jobs without
    a place are sized again, at most at what fits, and so are running jobs that the policy would
    stop because their pinned size does not fit."""
    unmet = unmet_pins(shares, wanted.sizes)
    if not wanted.fragmented and not unmet:
        return wanted
    if unmet <= wanted.placed.allocations.keys():
        opened = defragment(shares, wanted.fragmented, placed=wanted.placed)
        if opened is not None:
            return replace(wanted, placed=opened)
    short = wanted.placed.short
    fits = {wish.job.id: min(short[wish.job.id], wish.units - 1) for wish in wanted.fragmented}
    again = place_sizes(shares, size_again(shares, policy, first=wanted.sizes, fits=fits))
    fragmented = wanted.fragmented + again.fragmented
    return replace(again, waits={**wanted.waits, **again.waits}, fragmented=fragmented)
