"""Plans a submit without queueing jobs: where and when each job would start, which jobs are ahead,
and which jobs would lose GPUs.

A dry run changes nothing and decides one round, in a thread. The expected times of jobs that wait
come from the forecaster, within its limits. Each user has one dry run at a time; a policy that does
not return keeps the user's next dry run from starting, so that threads do not pile up.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from rota.core.estimation.forecast import JobForecast
from rota.core.estimation.remaining_time import remaining_s
from rota.core.explain.submit_plan import PlannedStart, plan_submit
from rota.core.lifecycle.reducer import new_job
from rota.core.model.allocation import n_gpus
from rota.core.model.events import JobSubmitted
from rota.core.model.job import Held, Job, JobId
from rota.core.scheduling.plan import AllocationChange
from rota.daemon.access.authorization import Caller
from rota.daemon.jobs.admission import Admitted
from rota.daemon.jobs.eta import LONGEST_ETA_S
from rota.daemon.jobs.forecaster import Forecaster
from rota.daemon.jobs.submission import SubmissionService
from rota.daemon.jobs.views import job_view
from rota.daemon.runtime.controller import Controller
from rota.errors import UnavailableError, UserError
from rota.thread_pools import FORECASTS
from rota.wire.jobs import JobRequest, JobView
from rota.wire.submit_plan import JobPlan, PlannedChange, PlannedSlot, SubmitPlan

MAX_PLANNED = 20
"""Requests of one submit that are planned. All requests are checked."""
MAX_SHOWN = 5
"""Jobs ahead that a plan lists."""
MAX_WAIT_S = 30.0
"""How long a caller waits."""


class TooManyPlansError(UserError):
    code = "too_many"


class SubmitPlanService:
    def __init__(
        self,
        controller: Controller,
        submissions: SubmissionService,
        *,
        forecaster: Forecaster,
        clock: Callable[[], float],
    ) -> None:
        self._controller = controller
        self._submissions = submissions
        self._forecaster = forecaster
        self._clock = clock
        self._running: dict[str, asyncio.Future[SubmitPlan]] = {}
        """The dry run of each user."""

    async def plan(self, caller: Caller, requests: Sequence[JobRequest]) -> SubmitPlan:
        """Check all requests as a submit does, and plan the first ones."""
        admitted = await self._submissions.check(caller, requests)
        self._controller.require_available()
        user = caller.user
        if user in self._running:
            raise TooManyPlansError(f"another dry run of {user} has not ended", "try again later")
        task = self._running[user] = asyncio.ensure_future(self._plan(admitted))
        task.add_done_callback(lambda _: self._running.pop(user, None))
        await asyncio.wait({task}, timeout=MAX_WAIT_S)
        if not task.done():
            what = f"the dry run has not ended after {MAX_WAIT_S:g} s"
            raise UnavailableError(what, "look at the scheduler with 'rota status'")
        return task.result()

    async def _plan(self, admitted: Sequence[Admitted]) -> SubmitPlan:
        groups = _groups(admitted)
        jobs = [self._new_job(each[0], number) for number, each in enumerate(groups[:MAX_PLANNED])]
        starts = await self._starts(jobs)
        may_start_later = [not each.slots and not _is_held(each.job) for each in starts]
        expected: Mapping[JobId, JobForecast] = {}
        if any(may_start_later):
            expected = await self._forecaster.what_if(jobs)
        plans = [
            self._job_plan(each, count=len(group), expected=expected)
            for each, group in zip(starts, groups, strict=False)
        ]
        return SubmitPlan(len(admitted), plans)

    def _new_job(self, admitted: Admitted, number: int) -> Job:
        """The job with an id that sorts after all ids, as the id of a later submit does."""
        spec, job_id = admitted.spec, JobId(f"~{number:02}")
        if admitted.array_index is not None:
            spec = replace(spec, array=job_id)
        known = self._controller.speeds.get(spec.category)
        submitted = JobSubmitted(job_id, spec, is_held=admitted.request.hold)
        return new_job(submitted, self._clock(), known=known)

    async def _starts(self, jobs: Sequence[Job]) -> list[PlannedStart]:
        """Decide one round, in a thread that does not delay the end of the process."""
        controller = self._controller
        if stall := controller.scheduling_loop.stall:
            return [PlannedStart(job, reason=stall) for job in jobs]
        view, policy = controller.peek(), controller.policy
        return await FORECASTS.run(partial(plan_submit, view, jobs, policy=policy))

    # -- responses ------------------------------------------------------------------------------

    def _job_plan(
        self, start: PlannedStart, *, count: int, expected: Mapping[JobId, JobForecast]
    ) -> JobPlan:
        job, now = start.job, self._clock()
        known = expected.get(job.id, JobForecast())
        if start.slots:
            left_s = remaining_s(job, now, workers=job.spec.units_in(start.slots))
            known = JobForecast(now, now + left_s, job.speed.error)
        finish_s = _time(known.finish_s, now)
        return JobPlan(
            job=replace(job_view(job, now=now, reason=start.reason), id=""),
            count=count,
            starts_now=bool(start.slots),
            gpus=n_gpus(start.slots),
            slots=[PlannedSlot(each.node, list(each.gpus)) for each in start.slots],
            reason=start.reason,
            start_s=_time(known.start_s, now),
            finish_s=finish_s,
            finish_error=None if finish_s is None else round(known.error, 4),
            ahead_count=len(start.ahead),
            ahead=self._views(start.ahead[:MAX_SHOWN], now=now),
            changes=[
                change for each in start.changes if (change := self._change(each)) is not None
            ],
        )

    def _views(self, ids: Sequence[JobId], *, now: float) -> list[JobView]:
        """The jobs as in `rota list`: every user sees their names, owners and sizes. Other jobs of
        the same dry run have no id."""
        jobs = (self._controller.job(each) for each in ids)
        return [job_view(job, now=now) for job in jobs if job is not None]

    def _change(self, change: AllocationChange) -> PlannedChange | None:
        """None for a job that has ended since the round."""
        job = self._controller.job(change.job_id)
        if job is None:
            return None
        before, after = n_gpus(change.before), n_gpus(change.after)
        is_smaller = after < before or len(change.after) < len(change.before)
        word = "preempted" if not change.after else "shrunk" if is_smaller else "moved"
        return PlannedChange(job.id, job.spec.name, job.spec.user, word, before, after)


def _groups(admitted: Sequence[Admitted]) -> list[list[Admitted]]:
    """The jobs of each request: one, or all jobs of its array."""
    groups: list[list[Admitted]] = []
    for each in admitted:
        if each.array_index is None or each.is_first:
            groups.append([])
        groups[-1].append(each)
    return groups


def _is_held(job: Job) -> bool:
    return isinstance(job.phase, Held)


def _time(at_s: float, now: float) -> float | None:
    """None for a time that is unknown or too far away."""
    return round(at_s, 3) if math.isfinite(at_s) and at_s - now < LONGEST_ETA_S else None
