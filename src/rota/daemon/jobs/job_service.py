"""Shows, lists, cancels, holds, releases, edits and resizes jobs for callers.

Each method checks the caller with the functions of `daemon.access.authorization`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from rota.core.estimation.service_time import service_at
from rota.core.explain.feasibility import checker_of
from rota.core.lifecycle.states import JobState
from rota.core.model.events import JobEvent, JobResized
from rota.core.model.job import Held, Job, Mode
from rota.core.model.rank import Rank, rank_of
from rota.daemon.access.authorization import (
    DEFAULT_PRIORITY_LIMITS,
    Caller,
    PriorityLimits,
    job_scope,
    may_see,
    require_owner_or_admin,
    require_priority,
    require_write,
)
from rota.daemon.diagnosis.diagnosis import hint_for
from rota.daemon.jobs.admission import edit_event, with_edits
from rota.daemon.jobs.forecaster import Forecaster
from rota.daemon.jobs.job_lookup import JobDirectory, require_whole
from rota.daemon.jobs.job_selection import JobAction, rank_by_age, require_not_over, select_jobs
from rota.daemon.jobs.profile_view import (
    LiveWorkers,
    live_workers_of,
    profile_of,
    with_live_details,
)
from rota.daemon.jobs.views import (
    WaitReasons,
    attempt_view,
    job_view,
    redact_reason,
    without_released_gpus,
)
from rota.daemon.runtime.controller import Controller
from rota.daemon.training.report_service import ReportService
from rota.engines.interface import WorkerGpus
from rota.errors import UserError, printable
from rota.store.interface import Store
from rota.store.records import JobFilter
from rota.thread_pools import STORE
from rota.wire.job_changes import ChangedJobs, JobEdit, JobSelection
from rota.wire.jobs import FINAL_STATES, JobDetails, JobView
from rota.wire.training import JobProfile

FINAL = frozenset(JobState(each) for each in FINAL_STATES)
HIDDEN = "(only its owner may see it)"


@dataclass(frozen=True, slots=True)
class JobViewPage:
    jobs: list[JobView]
    next: int | None
    more: int = 0


@dataclass(frozen=True, slots=True)
class JobViewSources:
    """What a view shows besides the job itself: expected end, reason, reports, GPUs."""

    forecaster: Forecaster
    reasons: WaitReasons
    reports: ReportService
    worker_gpus: WorkerGpus


def _listing_key(job: Job) -> tuple[int, Rank]:
    """The place of a job that is not over in a list for people: first the jobs that hold workers,
    then the queue in the order in which it is served, then the held jobs."""
    return 0 if job.is_active else 2 if isinstance(job.phase, Held) else 1, rank_of(job)


def _matches(job: Job, wanted: JobFilter) -> bool:
    return (
        (not wanted.states or job.state in wanted.states)
        and wanted.user in ("", job.spec.user)
        and wanted.project in ("", job.spec.project)
    )


class JobService:
    def __init__(
        self,
        controller: Controller,
        directory: JobDirectory,
        *,
        store: Store,
        sources: JobViewSources,
        clock: Callable[[], float],
        priority_limits: PriorityLimits = DEFAULT_PRIORITY_LIMITS,
    ) -> None:
        self._controller = controller
        self._store = store
        self._directory = directory
        self._forecaster = sources.forecaster
        self._reasons = sources.reasons
        self._reports = sources.reports
        self._worker_gpus = sources.worker_gpus
        self._clock = clock
        self._priority_limits = priority_limits

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
        page = await STORE.run(self._directory.page, wanted, before=before, limit=limit)
        return JobViewPage([self.view(caller, job) for job in page.jobs], page.next)

    async def queue_page(
        self, caller: Caller, wanted: JobFilter, *, skip: int, limit: int
    ) -> JobViewPage:
        """Jobs in the order of the queue, ended jobs last, without the first `skip` jobs."""
        if job_scope(caller) is not None:
            return await self.page(caller, wanted, before=None, limit=limit)
        await self._forecaster.refresh()
        ended = replace(wanted, states=(wanted.states or FINAL) & FINAL)
        live = sorted(
            (job for job in self._controller.jobs.values() if _matches(job, wanted)),
            key=_listing_key,
        )
        shown, n_left = live[skip : skip + limit], max(0, len(live) - skip - limit)
        n_ended = await STORE.run(self._store.count_jobs, ended) if ended.states else 0
        views = [self.view(caller, job) for job in shown]
        if n_left or not n_ended or len(views) == limit:
            return JobViewPage(views, None, n_left + n_ended)
        page = await STORE.run(self._directory.page, ended, before=None, limit=limit - len(views))
        views += [self.view(caller, job) for job in page.jobs]
        return JobViewPage(views, page.next, max(0, n_ended - len(page.jobs)))

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
        saved = await STORE.run(self._directory.program, job.id)
        request = saved.request
        attempts = [
            attempt_view(each, worker_gpus=self._worker_gpus)
            for each in await STORE.run(self._directory.attempts, job.id)
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
            request=with_edits(request, job.spec),
            attempts=attempts,
            failures=job.failures,
            gpu_s=service.gpu_s,
            queued_s=service.waiting_s,
            after=list(job.spec.after),
            after_any=list(job.spec.after_any),
            after_failed=list(job.spec.after_failed),
            retries_left=max(0, job.spec.retries - job.failures),
            array_index=saved.array_index,
            hint=hint_for(attempts[-1].reason) if attempts else "",
        )
        return with_live_details(found, job, live=live, is_crowded=self._forecaster.is_crowded)

    async def profile(self, caller: Caller, word: str) -> JobProfile:
        """The measurements of a job, for callers who may read its logs."""
        job = await self._directory.find_async(caller, word)
        require_owner_or_admin(caller, job)
        live = live_workers_of(self._reports, job.id)
        return await STORE.run(profile_of, job, self._store, live=live)

    # -- changes --------------------------------------------------------------------------------

    async def change_one(
        self, caller: Caller, word: str, *, action: JobAction, reason: str = ""
    ) -> JobView:
        """Cancel, hold or release one job, which must not be over."""
        require_write(caller)
        self._controller.require_available()
        job = await self._directory.find_to_change(caller, word)
        require_not_over(job)
        return await self._apply(caller, action.event(job.id, caller.user, printable(reason)))

    async def change(
        self, caller: Caller, selection: JobSelection, *, action: JobAction
    ) -> ChangedJobs:
        """Cancel, hold or release all selected jobs in one event: no scheduling round runs in
        between. Words that name no job are reported and change nothing."""
        require_write(caller)
        self._controller.require_available()
        selected = await select_jobs(self._directory, caller, selection=selection, action=action)
        if not selection.dry_run:
            reason = printable(selection.reason)
            # The newest first: a job that waits for another one ends before that one does.
            events = [
                action.event(job.id, caller.user, reason)
                for job in sorted(selected.jobs, key=rank_by_age, reverse=True)
            ]
            written = self._controller.apply_events(events, (), actor=caller.user)
            await self._controller.durable(written)
        jobs = await STORE.run(self._newest, selected.jobs)
        views = [self.view(caller, job) for job in jobs]
        return ChangedJobs(views, selected.problems, selected.n_ended)

    def _newest(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs as they are now. Blocks."""
        return [self._directory.get(job.id) or job for job in jobs]

    async def named(self, caller: Caller, word: str) -> list[JobView]:
        """The jobs that a word names: one job, or all jobs of an array."""
        await self._forecaster.refresh()
        match = await self._directory.match_async(caller, word)
        return [self.view(caller, job) for job in match.jobs]

    async def edit(self, caller: Caller, word: str, *, edit: JobEdit) -> list[JobView]:
        """Change fields of a job, or of all jobs of an array that have not ended, in one event."""
        require_write(caller)
        self._controller.require_available()
        match = await self._directory.match_async(caller, word)
        require_owner_or_admin(caller, match.jobs[0])
        require_whole(match)
        live = [job for each in match.jobs if (job := self._directory.live(each.id))]
        if not live:
            require_not_over(match.jobs[0])
        if (priority := edit.priority) is not None:
            for job in live:
                require_priority(
                    caller, priority, limits=self._priority_limits, current=job.spec.priority
                )
        nodes = checker_of(self._controller.nodes.values())
        events = [edit_event(job, edit, actor=caller.user, feasibility=nodes) for job in live]
        await self._controller.durable(self._controller.apply_events(events, (), actor=caller.user))
        return [self.view(caller, job) for job in live]

    async def resize(self, caller: Caller, word: str, *, gpus: int | None) -> JobView:
        """Set the number of GPUs, as soon as the cluster has room. None: the policy decides."""
        self._controller.require_available()
        job = await self._directory.find_to_change(caller, word)
        units = checked_units(job, gpus)
        return await self._apply(caller, JobResized(job.id, units, caller.user))

    async def _apply(self, caller: Caller, event: JobEvent) -> JobView:
        await self._controller.durable(self._controller.apply_event(event, actor=caller.user))
        return self.view(caller, await self._directory.find_async(caller, event.job_id))


def checked_units(job: Job, gpus: int | None) -> int | None:
    """The size in units of a number of GPUs. Raises if the job cannot run with this number."""
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
    if gpus is None:
        return None
    each, least, most = (spec.gpus_of(units) for units in (1, spec.min_workers, spec.max_workers))
    if not least <= gpus <= most:
        raise UserError(
            f"job {job.id} runs on {least} to {most} GPUs, not {gpus}",
            "use a number in between, or 'auto' to let the policy decide",
        )
    if gpus % each:
        raise UserError(
            f"job {job.id} has {each} GPUs per process, and {gpus} is not a multiple of that",
            f"use a multiple of {each}",
        )
    return gpus // each
