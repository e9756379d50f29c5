"""Finds jobs by id, name, or part of an id, and checks that the caller may read or change them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from rota.core.lifecycle.states import JobState
from rota.core.model.job import Ended, Job, JobId
from rota.daemon.access.authorization import Caller, may_name, require_owner, require_write
from rota.daemon.errors import NotFoundError
from rota.daemon.jobs.job_ids import is_job_id
from rota.daemon.launch.programs import SubmittedProgram, unpack
from rota.daemon.runtime.job_reader import JobReader
from rota.errors import UserError, did_you_mean
from rota.store.interface import Store
from rota.store.records import Attempt, JobFilter, StoredJobPage
from rota.wire.jobs import LIVE_STATES

LIST_ALL = "'rota list --all' shows every job"
PRUNED = "ended jobs are deleted after the time in the setting 'keep_jobs'; " + LIST_ALL
LIVE = frozenset(JobState(each) for each in LIVE_STATES)


class AmbiguousError(UserError):
    """Several jobs match."""

    code = "ambiguous"


class ArrayError(UserError):
    """The name is the name of an array, and the request is about one job."""

    code = "array"


class JobDirectory:
    """Reads jobs. The kernel knows the jobs that are not over, the store knows all jobs; the
    kernel may be ahead of the store by one write.

    A method that reads the store blocks. Code in the event loop awaits the `_async` methods, or
    calls the others in a thread."""

    def __init__(self, reader: JobReader, store: Store) -> None:
        self._reader = reader
        self._store = store

    def live(self, job_id: JobId) -> Job | None:
        """The job, if it is not over."""
        return self._reader.job(job_id)

    def get(self, job_id: JobId) -> Job | None:
        return self.live(job_id) or self._store.job(job_id)

    def is_over(self, job_id: JobId) -> bool:
        """Whether the job has ended and its end is in the store."""
        if self.live(job_id) is not None:
            return False
        job = self._store.job(job_id)
        return job is None or isinstance(job.phase, Ended)

    def find(self, caller: Caller, word: str) -> Job:
        return find_job(word, caller, reader=self._reader, store=self._store)

    async def find_async(self, caller: Caller, word: str) -> Job:
        """Find a job without blocking the event loop. The id of a live job needs no thread."""
        live = self.live(JobId(word)) if may_name(caller, word) else None
        return live or await asyncio.to_thread(self.find, caller, word)

    async def find_owned_async(self, caller: Caller, word: str) -> Job:
        """As `find_owned`, without blocking the event loop."""
        require_write(caller)
        job = await self.find_async(caller, word)
        require_owner(caller, job)
        return job

    def find_readable(self, caller: Caller, word: str) -> Job:
        """A job whose logs and measurements this caller may read."""
        job = self.find(caller, word)
        require_owner(caller, job)
        return job

    def find_owned(self, caller: Caller, word: str) -> Job:
        """A job that this caller may change, and whose processes the caller may reach. Tokens
        that only read, and tokens of jobs, are not enough."""
        require_write(caller)
        return self.find_readable(caller, word)

    def page(self, wanted: JobFilter, *, before: int | None, limit: int) -> StoredJobPage:
        return self._store.jobs(wanted, before=before, limit=limit)

    def attempts(self, job_id: JobId) -> Sequence[Attempt]:
        return self._store.attempts(job_id)

    def program(self, job_id: JobId) -> SubmittedProgram:
        submission = self._store.submission(job_id)
        if submission is None:
            raise NotFoundError(f"the request of job {job_id} is not in the store")
        return unpack(submission.program)

    async def changed(self) -> None:
        """Wait for the next change of any job that is in the store."""
        await self._reader.changed()


def find_job(word: str, caller: Caller, *, reader: JobReader, store: Store) -> Job:
    """The caller's own jobs come first. A name means the job that is not over, else the newest."""
    if not may_name(caller, word):
        raise NotFoundError(f"no job {word[:40]!r}", "this token is for one job only")
    exact = reader.job(JobId(word)) or store.job(JobId(word))
    if exact is not None:
        return exact
    found = _candidates(word, caller.user, store=store)
    _require_no_array(word, caller.user, instead=found, store=store)
    found = found or _candidates(word, "", store=store)
    if not found:
        own = [job.spec.name for job in store.jobs(JobFilter(user=caller.user)).jobs]
        hint = did_you_mean(word, own) or (PRUNED if is_job_id(word) else LIST_ALL)
        raise NotFoundError(f"no job {word[:40]!r}", hint)
    if len(found) != 1:
        some = ", ".join(f"{job.id} ({job.spec.name}, {job.state})" for job in found[:5])
        raise AmbiguousError(f"{word[:40]!r} could be {some}", "give more of the id")
    return found[0]


def describe_state(job: Job) -> str:
    """The state of a job as half a sentence."""
    if job.state is JobState.CANCELLED:
        return "it was cancelled"
    return f"it has {job.state}" if isinstance(job.phase, Ended) else f"it is {job.state}"


def _candidates(word: str, user: str, *, store: Store) -> Sequence[Job]:
    """The jobs of this name that are not over, or the newest one; else jobs with such an id."""
    wanted = JobFilter(user=user, word=word)
    found = store.jobs(wanted).jobs
    named = [job for job in found if job.spec.name == word]
    if not named:
        return found
    live = store.jobs(replace(wanted, states=LIVE)).jobs
    return [job for job in live if job.spec.name == word] or named[:1]


def _require_no_array(word: str, user: str, *, instead: Sequence[Job], store: Store) -> None:
    """Reject the name of an array, unless a newer job or a job that is not over has this name."""
    array = store.jobs(JobFilter(user=user, word=f"{word}["), limit=1).jobs
    if not array or any(not isinstance(job.phase, Ended) for job in instead):
        return
    if not instead or instead[0].submitted_s < array[0].submitted_s:
        example = array[0].spec.name
        raise ArrayError(f"{word[:40]!r} is an array", f"name one of its jobs, such as '{example}'")
