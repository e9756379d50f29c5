"""Builds the program of a job that starts: command, account, code, mounts and environment."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from rota.config.limits import DEFAULT_LIMITS, UserLimits
from rota.core.model.job import Job, JobId
from rota.daemon.access.authorization import DEFAULT_PRIORITY_LIMITS, PriorityLimits
from rota.daemon.artifacts.snapshots import SnapshotOwner, Snapshots, snapshot_owner_of
from rota.daemon.jobs.admission import Defaults
from rota.daemon.launch.interface import LaunchContext, LaunchEnvironment
from rota.daemon.launch.programs import SubmittedProgram, program, unpack
from rota.daemon.runtime.job_reader import JobReader
from rota.daemon.runtime.lost_jobs import record_of
from rota.engines.interface import Program
from rota.errors import UserError
from rota.store.interface import Store
from rota.store.records import Submission
from rota.tasks import ErrorIsolation
from rota.thread_pools import CLEAN_UP, JOB_FILES

log = structlog.get_logger()


class AttemptTokens(Protocol):
    def for_attempt(self, job_id: JobId, attempt: int) -> str:
        """The token with which the workers of an attempt call the daemon."""
        ...


@dataclass(frozen=True, slots=True)
class WorkerCredentials:
    """How workers reach the daemon: its URL, and the tokens of their attempts."""

    url: str
    tokens: AttemptTokens

    def env(self, job: Job) -> dict[str, str]:
        """Environment variables; none if workers cannot reach the daemon."""
        if not self.url:
            return {}
        return {"ROTA_URL": self.url, "ROTA_TOKEN": self.tokens.for_attempt(job.id, job.attempt)}


@dataclass(frozen=True, slots=True)
class SiteConfig:
    """What differs between daemons: clock, defaults, credentials, shipped code, environment and
    limits."""

    clock: Callable[[], float]
    defaults: Callable[[str], Defaults]
    """Project -> what the daemon adds to its jobs."""
    credentials: WorkerCredentials
    snapshots: Snapshots
    launch_environment: LaunchEnvironment
    limits: UserLimits = DEFAULT_LIMITS
    priority_limits: PriorityLimits = DEFAULT_PRIORITY_LIMITS
    wall_clock: Callable[[], float] = time.time
    """For times that a program compares with its own clock."""


class Launcher:
    def __init__(self, reader: JobReader, store: Store, *, site: SiteConfig) -> None:
        self._reader = reader
        self._store = store
        self._site = site
        self._isolation = ErrorIsolation("checkpoints not deleted", raises=())

    async def program(self, job_id: JobId) -> Program:
        """The program that the engine starts for this job."""
        job = self._reader.job(job_id)
        if job is None:
            raise _unknown_request(job_id)
        # A thread of its own: a slow disk must not use up the shared threads.
        submission, saved, found = await JOB_FILES.run(self._prepare, job_id)
        env = self._site.credentials.env(job) | self._resume_env(job) | dict(found.env)
        if saved.request.epochs is not None:
            env["ROTA_EPOCHS"] = f"{saved.request.epochs:.15g}"
        if found.workdir is not None:
            saved = replace(saved, request=replace(saved.request, workdir=found.workdir))
        defaults = self._site.defaults(job.spec.project)
        is_contained = defaults.are_contained or bool(saved.request.image)
        made = program(saved, job.spec, account=found.account, env=env, is_contained=is_contained)
        name, uid = found.owner
        mounts = (*made.mounts, *found.mounts)
        return replace(
            made,
            log=defaults.log,
            mounts=mounts,
            code=found.code,
            owner_name=name,
            owner_uid=uid,
            record=record_of(job, submission),
        )

    def _prepare(self, job_id: JobId) -> tuple[Submission, SubmittedProgram, LaunchContext]:
        submission = self._store.submission(job_id)
        if submission is None:
            raise _unknown_request(job_id)
        saved = unpack(submission)
        found = self._site.launch_environment.prepare(submission, saved.request)
        return submission, saved, found

    def _resume_env(self, job: Job) -> dict[str, str]:
        """Variables with which a program continues where the last attempt stopped."""
        return {
            "EPOCHS_DONE": str(int(job.epochs_saved)),
            "ROTA_RESTARTS": str(job.attempt - 1),
            "ROTA_BEGAN": f"{self._site.wall_clock():.3f}",
        }

    async def prune_snapshots(self, live: Collection[JobId], *, keep_workdir_s: float) -> None:
        """Delete shipped code that no job of `live` needs, and the copies of jobs that ended longer
        ago than this."""
        await CLEAN_UP.run(self._prune, live, keep_workdir_s)

    def _prune(self, job_ids: Collection[JobId], keep_workdir_s: float) -> None:
        needed: set[tuple[SnapshotOwner, str]] = set()
        unreadable: set[SnapshotOwner] = set()
        for job_id in job_ids:
            submission = self._store.submission(job_id)
            if submission is None:
                continue
            owner = snapshot_owner_of(submission)
            try:
                snapshot = unpack(submission).request.snapshot
            except Exception as error:
                # The owner keeps all snapshots: the job may need any of them.
                log.error("stored request unreadable", job=job_id, exc_info=error)
                unreadable.add(owner)
            else:
                if snapshot:
                    needed.add((owner, snapshot))
        self._site.snapshots.prune(needed, spared=unreadable)
        self._site.snapshots.prune_workdirs(job_ids, unused_s=keep_workdir_s)

    async def remove_checkpoints(self, job_ids: Collection[JobId]) -> None:
        """Delete the checkpoints of jobs whose logs were deleted."""
        await CLEAN_UP.run(self._remove_checkpoints, job_ids)

    def _remove_checkpoints(self, job_ids: Collection[JobId]) -> None:
        for job_id in job_ids:
            submission = self._store.submission(job_id)
            with self._isolation.of(job=job_id):
                if submission is None:
                    continue
                self._site.launch_environment.remove_checkpoints(job_id, submission.user)


def _unknown_request(job_id: JobId) -> UserError:
    return UserError(f"the request of job {job_id} is not in the store")
