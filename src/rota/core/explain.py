"""Answers "why does this job wait?" from a view and the plan that was made of it."""

from __future__ import annotations

from rota.core.divide import wish
from rota.core.model import Held, Job, Queued, Running
from rota.core.plan import Plan
from rota.core.reasons import (
    BacksOff,
    OnHold,
    Reason,
    WaitsForARound,
    WaitsForItsTurn,
    WaitsForJobs,
)
from rota.core.view import View


def why_it_waits(job: Job, view: View, *, plan: Plan) -> Reason | None:
    """The one dominant reason; None for a job that does not wait."""
    match job.phase:
        case Held():
            return OnHold()
        case Queued() if job.id in plan.allocations:
            return None
        case Queued(not_before_s=until_s) if until_s > view.now:
            return BacksOff(until_s)
        case Queued() if job.id in plan.waits:
            return plan.waits[job.id]
        case Queued() if all(other.id != job.id for other in view.jobs):
            return WaitsForJobs(job.spec.after) if job.spec.after else WaitsForARound()
        case Queued():
            return _waits_for_its_turn(job, view, plan=plan)
        case _:
            return None


def _waits_for_its_turn(job: Job, view: View, *, plan: Plan) -> WaitsForItsTurn:
    ahead = [
        other
        for other in view.jobs
        if other.id not in plan.allocations and _comes_before(other, job)
    ]
    n_running = sum(isinstance(other.phase, Running) for other in view.jobs)
    return WaitsForItsTurn(wish(job), n_ahead=len(ahead), n_running=n_running)


def _comes_before(other: Job, job: Job) -> bool:
    return (-other.spec.priority, other.submitted_s, other.id) < (
        -job.spec.priority,
        job.submitted_s,
        job.id,
    )
