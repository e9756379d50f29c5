"""Jobs that have run, as jobs of a trace."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rota.core.estimation.speed_model import estimated
from rota.core.lifecycle.states import JobState
from rota.core.model.job import Ended, Job, JobId, JobSpec, Processes, Queued, ServiceTime
from rota.daemon.access.authorization import AccessScope, Caller
from rota.daemon.errors import ForbiddenError
from rota.daemon.jobs.job_history import JobHistory, history_job
from rota.store.records import JobFilter, StoredJobPage

NOW = 1000.0


def ended(spec: JobSpec, *, running_s: float = 100.0, gpu_s: float = 0.0) -> Job:
    service = ServiceTime(NOW, running_s=running_s, gpu_s=gpu_s)
    return Job(JobId("1q1ghcmf"), spec, 500.0, Ended(NOW, JobState.SUCCEEDED), service)


def test_an_elastic_job_has_the_duration_of_its_requested_size():
    """It ran 100 s on 4 GPUs, three times as fast as on one."""
    spec = JobSpec("a", max_workers=4, requested_workers=1)
    speed = estimated(10.0, speedups=(0.0, 1.0, 2.0, 2.5, 3.0))
    job = replace(ended(spec, gpu_s=400.0), speed=speed)
    found = history_job(job, NOW)
    assert (found.gpus, found.duration_s) == ("1..4@1", 300.0)
    mixed = replace(job, service=replace(job.service, gpu_s=150.0))
    assert history_job(mixed, NOW).duration_s == 150.0


def test_a_job_of_one_size_has_its_run_time():
    spec = JobSpec("a", min_workers=2, max_workers=2, requested_workers=2, gpus=4)
    found = history_job(ended(spec, gpu_s=1.0), NOW)
    assert (found.gpus, found.gpus_per_worker, found.duration_s) == ("8", 4, 100.0)
    whole = replace(spec, gpus=1, processes=Processes.PER_NODE)
    assert history_job(ended(whole), NOW).processes == "per-node"


class Directory:
    """A stored page of jobs."""

    def __init__(self, *jobs: Job) -> None:
        self.jobs = jobs
        self.users: list[str] = []

    def page(self, wanted: JobFilter, *, before: int | None, limit: int) -> StoredJobPage:
        assert (before, limit) == (7, 10)
        self.users.append(wanted.user)
        return StoredJobPage(self.jobs, 3)

    def live(self, job_id: JobId) -> Job | None:
        assert job_id
        return None


def history(directory: Directory) -> JobHistory:
    used: Any = directory
    store: Any = SimpleNamespace()
    return JobHistory(used, store, clock=lambda: NOW)


def test_jobs_that_have_not_run_are_counted():
    ran = ended(JobSpec("ran"))
    never = ended(JobSpec("never"), running_s=0.0)
    old = replace(ran, submitted_s=10.0)
    queued = replace(ran, phase=Queued(NOW))
    directory = Directory(ran, never, old, queued)
    admin = Caller("ada", is_admin=True)
    page = history(directory).jobs(admin, since_s=400.0, before=7, limit=10)
    assert ([job.name for job in page.jobs], page.n_left_out, page.next) == (["ran"], 2, 3)


def test_only_administrators_get_the_jobs_of_all_users():
    directory = Directory()
    for caller in (Caller("bob"), Caller("ada", is_admin=True)):
        history(directory).jobs(caller, since_s=0.0, before=7, limit=10)
    assert directory.users == ["bob", ""]
    of_a_job = Caller("bob", scope=AccessScope.JOB, job_id=JobId("1q1ghcmf"))
    with pytest.raises(ForbiddenError):
        history(directory).jobs(of_a_job, since_s=0.0, before=7, limit=10)
