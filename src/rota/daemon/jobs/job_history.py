"""The past of jobs: their state changes, and the jobs that have run as jobs of a trace."""

from __future__ import annotations

import math
from collections.abc import Callable

from rota.core.model.job import Ended, Job, JobId, Processes
from rota.daemon.access.authorization import Caller, may_see, may_see_all, require_person
from rota.daemon.access.public_view import public_story_entry
from rota.daemon.jobs.eta import job_eta
from rota.daemon.jobs.job_lookup import JobDirectory
from rota.daemon.jobs.views import gpus_text, running_s, story_entry
from rota.store.interface import Store
from rota.store.records import JobFilter
from rota.wire.history import HistoryJob, HistoryPage
from rota.wire.jobs import StoryEntry


class JobHistory:
    def __init__(
        self, directory: JobDirectory, store: Store, *, clock: Callable[[], float]
    ) -> None:
        self._directory = directory
        self._store = store
        self._clock = clock

    def newest_number(self) -> int:
        """The number of the last entry of all jobs."""
        return self._store.newest_entry()

    def entries(
        self, caller: Caller, job_id: JobId | None, *, after: int, limit: int
    ) -> list[StoryEntry]:
        """Entries with numbers above `after`; of all jobs without a `job_id`."""
        found = [story_entry(each) for each in self._store.story(job_id, after=after, limit=limit)]
        if may_see_all(caller):
            return found
        ids = {each.job_id for each in found}
        visible = {each for each in ids if self._may_see(caller, JobId(each))}
        return [each if each.job_id in visible else public_story_entry(each) for each in found]

    def _may_see(self, caller: Caller, job_id: JobId) -> bool:
        job = self._directory.get(job_id)
        return job is not None and may_see(caller, job)

    def jobs(
        self, caller: Caller, *, since_s: float, before: int | None, limit: int
    ) -> HistoryPage:
        """A page of the jobs that have run and were submitted after `since_s`: of the caller, for
        administrators of all users."""
        require_person(caller)
        wanted = JobFilter() if may_see_all(caller) else JobFilter(user=caller.user)
        page = self._directory.page(wanted, before=before, limit=limit)
        # The controller's copy of a job is newer than the store's.
        found = [self._directory.live(job.id) or job for job in page.jobs]
        recent = [job for job in found if job.submitted_s >= since_s]
        now = self._clock()
        ran = [history_job(job, now) for job in recent if _has_run(job, now)]
        return HistoryPage(ran, page.next, len(recent) - len(ran))


def _has_run(job: Job, now: float) -> bool:
    return (job.is_active or isinstance(job.phase, Ended)) and running_s(job, now) > 0


def history_job(job: Job, now: float) -> HistoryJob:
    spec = job.spec
    is_whole = spec.gpus > 0 and spec.share is None
    estimate = spec.estimate
    return HistoryJob(
        id=job.id,
        name=spec.name,
        user=spec.user,
        project=spec.project,
        state=job.state.value,
        submitted_s=job.submitted_s,
        gpus=_gpus(job),
        duration_s=round(_duration_s(job, now), 3),
        gpus_per_worker=spec.gpus if is_whole and not spec.merges_units else 1,
        processes=spec.processes.value if is_whole else Processes.PER_GPU.value,
        nodes=spec.max_nodes,
        gpu_types=list(spec.gpu_types),
        node_labels=dict(sorted(spec.node_labels)),
        cpus=spec.cpus,
        memory_bytes=spec.memory_bytes,
        priority=spec.priority,
        mode=spec.mode.value,
        category=spec.category,
        epochs=job.epochs if 0 < job.epochs < math.inf else None,
        speedups=_speedups(job),
        estimate_s=estimate.seconds
        if estimate is not None and estimate.workers == spec.requested_workers
        else None,
        min_runtime_s=spec.min_runtime_s,
    )


def _gpus(job: Job) -> str:
    """The GPUs in the form of --gpus, with the requested size."""
    spec, text = job.spec, gpus_text(job)
    return f"{text}@{spec.requested_workers * spec.gpus}" if ".." in text else text


def _duration_s(job: Job, now: float) -> float:
    """The run time at the requested size. An elastic job ran at several sizes: its time counts with
    the speed-up of its mean size."""
    spec = job.spec
    spent_s = max(0.001, running_s(job, now) + (job_eta(job, now, expected=None).remaining_s or 0))
    requested = job.speed.speedup(spec.requested_workers)
    if spec.min_workers == spec.max_workers or requested <= 0:
        return spent_s
    service = job.service
    is_counted = service.running_s > 0 and service.gpu_s > 0 and spec.unit_gpus > 0
    mean = service.gpu_s / service.running_s / spec.unit_gpus if is_counted else job.units
    return spent_s * (_speedup_between(job, mean) / requested or 1.0)


def _speedup_between(job: Job, units: float) -> float:
    """The speed-up of a mean size, which need not be a whole number."""
    below = math.floor(units)
    low, high = job.speed.speedup(below), job.speed.speedup(below + 1)
    return low + (high - low) * (units - below) if high else low


def _speedups(job: Job) -> list[float]:
    """The measured speed-ups on 1, 2, 3, ... units; empty if only one size is possible or nothing
    was measured."""
    most = job.spec.max_workers
    if most == 1 or not job.speed.measured:
        return []
    found = job.speed.speedups(most)[1 : most + 1]
    return [1.0, *(round(max(each / found[0], 0.001), 4) for each in found[1:])]
