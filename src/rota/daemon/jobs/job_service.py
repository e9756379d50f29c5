"""Shows, lists, cancels, holds, releases and resizes jobs for callers.

Each method checks the caller with the functions of `daemon.access.authorization`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from rota.core.estimation.service_time import service_at
from rota.core.model.events import JobCancelled, JobEvent, JobHeld, JobReleased, JobResized
from rota.core.model.job import Ended, Job, JobId, Mode
from rota.daemon.access.authorization import (
    Caller,
    job_scope,
    may_see,
    require_owner,
    require_write,
)
from rota.daemon.diagnosis.diagnosis import hint_for
from rota.daemon.jobs.forecaster import Forecaster
from rota.daemon.jobs.job_lookup import JobDirectory, describe_state
from rota.daemon.jobs.profile_view import (
    LiveWorkers,
    live_workers_of,
    profile_of,
    with_live_details,
)
from rota.daemon.jobs.views import attempt_view, job_view, redact_reason, without_released_gpus
from rota.daemon.jobs.wait_reasons import WaitReasons
from rota.daemon.runtime.controller import Controller
from rota.daemon.training.report_service import ReportService
from rota.engines.interface import WorkerGpus
from rota.errors import UserError, printable
from rota.store.interface import Store
from rota.store.records import JobFilter
from rota.wire.jobs import JobDetails, JobView
from rota.wire.training import JobProfile

HIDDEN = "(only its owner may see it)"


@dataclass(frozen=True, slots=True)
class JobViewPage:
    jobs: list[JobView]
    next: int | None


@dataclass(frozen=True, slots=True)
class JobViewSources:
    """What a view shows besides the job itself: expected end, reason, reports, GPUs."""

    forecaster: Forecaster
    reasons: WaitReasons
    reports: ReportService
    worker_gpus: WorkerGpus


class JobService:
    def __init__(
        self,
        controller: Controller,
        directory: JobDirectory,
        *,
        store: Store,
        sources: JobViewSources,
        clock: Callable[[], float],
    ) -> None:
        self._controller = controller
        self._store = store
        self._directory = directory
        self._forecaster = sources.forecaster
        self._reasons = sources.reasons
        self._reports = sources.reports
        self._worker_gpus = sources.worker_gpus
        self._clock = clock

    # -- views ----------------------------------------------------------------------------------

    async def page(
        self, caller: Caller, wanted: JobFilter, *, before: int | None, limit: int
    ) -> JobViewPage:
        """One page of jobs, the newest first. With a job's token: that job only."""
        await self._forecaster.refresh()
        own_id = job_scope(caller)
        if own_id is not None:
            job = await self._directory.find_async(caller, own_id)
            return JobViewPage([self.view(caller, job)], None)
        page = await asyncio.to_thread(self._directory.page, wanted, before=before, limit=limit)
        return JobViewPage([self.view(caller, job) for job in page.jobs], page.next)

    def view(self, caller: Caller, job: Job) -> JobView:
        """The kernel's copy of the job, which may be ahead of the store by one write."""
        live = self._directory.live(job.id)
        job = live or job
        view = job_view(
            job,
            now=self._clock(),
            reason=self._reasons.why(job),
            expected=self._forecaster.expected.get(job.id),
        )
        view = without_released_gpus(view, live)
        return view if may_see(caller, job) else replace(view, reason=redact_reason(view.reason))

    async def details(self, caller: Caller, word: str) -> JobDetails:
        await self._forecaster.refresh()
        job = await self._directory.find_async(caller, word)
        saved = await asyncio.to_thread(self._directory.program, job.id)
        request = saved.request
        attempts = [
            attempt_view(each, worker_gpus=self._worker_gpus)
            for each in await asyncio.to_thread(self._directory.attempts, job.id)
        ]
        live = live_workers_of(self._reports, job.id)
        service = service_at(job, self._clock())
        if not may_see(caller, job):
            live = LiveWorkers()
            attempts = [replace(each, reason=redact_reason(each.reason)) for each in attempts]
            request = replace(
                request, command=[HIDDEN], env={}, workdir="", mounts=[], snapshot="", ports=[]
            )
        found = JobDetails(
            job=self.view(caller, job),
            request=request,
            attempts=attempts,
            failures=job.failures,
            gpu_s=service.gpu_s,
            queued_s=service.waiting_s,
            after=list(job.spec.after),
            array_index=saved.array_index,
            hint=hint_for(attempts[-1].reason) if attempts else "",
        )
        return with_live_details(found, job, live=live, is_crowded=self._forecaster.is_crowded)

    async def profile(self, caller: Caller, word: str) -> JobProfile:
        """The measurements of a job, for callers who may read its logs."""
        job = await self._directory.find_async(caller, word)
        require_owner(caller, job)
        live = live_workers_of(self._reports, job.id)
        return await asyncio.to_thread(profile_of, job, self._store, live=live)

    # -- changes --------------------------------------------------------------------------------

    async def cancel(self, caller: Caller, word: str, *, reason: str = "") -> JobView:
        return await self._change(caller, word, event_type=JobCancelled, reason=reason)

    async def hold(self, caller: Caller, word: str, *, reason: str = "") -> JobView:
        return await self._change(caller, word, event_type=JobHeld, reason=reason)

    async def release(self, caller: Caller, word: str, *, reason: str = "") -> JobView:
        return await self._change(caller, word, event_type=JobReleased, reason=reason)

    async def resize(self, caller: Caller, word: str, *, workers: int | None) -> JobView:
        """Set the number of workers, as soon as the cluster has room. None: the policy decides."""
        self._controller.require_available()
        job = await self._directory.find_owned_async(caller, word)
        check_resize(job, workers)
        return await self._apply(caller, JobResized(job.id, workers, caller.user))

    async def _change(
        self,
        caller: Caller,
        word: str,
        *,
        event_type: Callable[[JobId, str, str], JobEvent],
        reason: str,
    ) -> JobView:
        require_write(caller)
        self._controller.require_available()
        job = await self._directory.find_owned_async(caller, word)
        require_not_over(job)
        return await self._apply(caller, event_type(job.id, caller.user, printable(reason)))

    async def _apply(self, caller: Caller, event: JobEvent) -> JobView:
        await self._controller.durable(self._controller.apply_event(event, actor=caller.user))
        return self.view(caller, await self._directory.find_async(caller, event.job_id))


def require_not_over(job: Job) -> None:
    if isinstance(job.phase, Ended):
        raise UserError(f"job {job.id} is over: {describe_state(job)}")


def check_resize(job: Job, workers: int | None) -> None:
    """Raises if the job cannot run with this number of workers."""
    spec = job.spec
    require_not_over(job)
    if spec.mode is Mode.FIXED:
        raise UserError(
            f"job {job.id} cannot change its size: its mode is 'fixed'",
            "submit it with --mode restart, torchrun or live",
        )
    if spec.min_workers == spec.max_workers:
        raise UserError(
            f"job {job.id} cannot change its size: it was submitted with one size only",
            "submit it for a range, such as --gpus 1..4",
        )
    if workers is not None and not spec.min_workers <= workers <= spec.max_workers:
        raise UserError(
            f"job {job.id} runs on {spec.min_workers} to {spec.max_workers} workers, not {workers}",
            "use a number in between, or 'auto' to let the policy decide",
        )
