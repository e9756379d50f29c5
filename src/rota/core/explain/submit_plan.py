"""Explains what the next round would do with jobs that are not submitted yet, for
`rota submit --dry-run`.

The new jobs join a view at the end of the queue, and one round decides about all of them. Pure:
the view stays as it is, and no plan is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rota.core.explain.explain import WaitExplainer
from rota.core.model.allocation import Allocation, n_gpus
from rota.core.model.job import Job, JobId, Queued
from rota.core.model.rank import rank_of
from rota.core.scheduling.divide import divide
from rota.core.scheduling.plan import AllocationChange, Plan, diff
from rota.core.scheduling.policy_api import Policy
from rota.core.scheduling.round import decide
from rota.core.scheduling.view import View


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """The start of one new job, or why the job waits."""

    job: Job
    slots: Allocation = ()
    """Where the next round would start the job; empty if the job waits."""
    reason: str = ""
    """Why the job waits; empty if the next round would start it."""
    ahead: tuple[JobId, ...] = ()
    """The jobs that wait for GPUs of the same type and come first, in the order of the queue."""
    changes: tuple[AllocationChange, ...] = ()
    """The jobs that lose or exchange GPUs of the same type in the round that starts the job."""


def plan_submit(view: View, jobs: Sequence[Job], *, policy: Policy) -> list[PlannedStart]:
    """The planned starts of new jobs, given in the order of the submit."""
    joining = {job.id: job for job in jobs if _may_start(job)}
    view = replace(view, jobs={**view.jobs, **joining})
    plan = decide(view, policy) if joining else Plan(view.planned, view.gpu_types)
    if plan.violations:
        reason = f"the policy made no valid plan: {plan.violations[0]}"
        return [PlannedStart(job, reason=reason) for job in jobs]
    round_ = _DecidedRound(view, plan)
    return [round_.start_of(job) for job in jobs]


def _may_start(job: Job) -> bool:
    """Whether a new job may start at once: it is not held and depends on no other job."""
    return isinstance(job.phase, Queued) and not job.spec.dependencies


class _DecidedRound:
    """A round that includes the new jobs. The work for all of them is done once."""

    def __init__(self, view: View, plan: Plan) -> None:
        self._view = view
        self._plan = plan
        self._explainer = WaitExplainer(view, plan)
        self._changes = [each for each in diff(view.planned, plan.allocations) if _loses(each)]
        self._gpu_types = {
            job.id: pool.gpu_type for pool in divide(view).pools for job in pool.jobs
        }
        self._waiting = sorted(
            (job for job_id, job in view.jobs.items() if job_id not in plan.allocations),
            key=rank_of,
        )

    def start_of(self, job: Job) -> PlannedStart:
        slots = self._plan.allocations.get(job.id, ())
        return PlannedStart(
            job,
            slots,
            reason="" if slots else str(self._explainer.wait_reason(job) or ""),
            ahead=self._ahead_of(job),
            changes=self._changes_for(job) if slots else (),
        )

    def _ahead_of(self, job: Job) -> tuple[JobId, ...]:
        gpu_type, rank = self._gpu_types.get(job.id), rank_of(job)
        if gpu_type is None:
            return ()
        return tuple(
            each.id
            for each in self._waiting
            if rank_of(each) < rank and self._gpu_types.get(each.id) == gpu_type
        )

    def _changes_for(self, job: Job) -> tuple[AllocationChange, ...]:
        gpu_type, before = self._gpu_types.get(job.id), self._view.gpu_types
        return tuple(
            each for each in self._changes if not gpu_type or before.get(each.job_id) == gpu_type
        )


def _loses(change: AllocationChange) -> bool:
    """Whether a job loses or exchanges slots. A job that starts or grows does not."""
    before, after = change.before, change.after
    if not n_gpus(before):
        return bool(before) and len(after) <= len(before)
    return n_gpus(after) <= n_gpus(before)
