"""Finds jobs by id, name, or part of an id, and checks that the caller may read or change them.

A word is resolved in one order everywhere: an exact id; the exact name of a job or an array; the
beginning of an id, at least `MIN_PREFIX` characters; the end of an id. In each step, the caller's
own jobs come first.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from rota.core.lifecycle.states import JobState
from rota.core.model.job import Ended, Job, JobId
from rota.daemon.access.authorization import Caller, may_name, require_owner_or_admin, require_write
from rota.daemon.errors import NotFoundError
from rota.daemon.jobs.job_ids import is_job_id
from rota.daemon.launch.programs import SubmittedProgram, unpack
from rota.daemon.runtime.job_reader import JobReader
from rota.errors import UserError, did_you_mean, shown
from rota.store.interface import Store
from rota.store.records import MIN_PREFIX, Attempt, JobFilter, StoredJobPage
from rota.thread_pools import STORE
from rota.wire.jobs import LIVE_STATES

LIST_ALL = "'rota list --all' shows every job"
PRUNED = "ended jobs are deleted after the time in the setting 'keep_jobs'; " + LIST_ALL
LIVE = frozenset(JobState(each) for each in LIVE_STATES)
PAGE = 10_000


class AmbiguousError(UserError):
    """Several jobs match."""

    code = "ambiguous"


class ArrayError(UserError):
    """The name is the name of an array, and the request is about one job."""

    code = "array"


class PartialIdError(UserError):
    """The word is only a part of an id, and the request would change the job."""

    code = "partial_id"

    def __init__(self, match: JobMatch) -> None:
        job = match.jobs[0]
        part = "beginning" if match.kind is MatchKind.PREFIX else "end"
        super().__init__(
            f"'{shown(match.word)}' is only the {part} of the id of job {job.id}"
            f" ({job.spec.name}, {job.state})",
            "give the whole id, or confirm with --yes",
        )
        self.field = str(job.id)


class MatchKind(StrEnum):
    """How a word names jobs."""

    ID = "id"
    NAME = "name"
    ARRAY = "array"
    PREFIX = "prefix"
    SUFFIX = "suffix"

    @property
    def is_partial(self) -> bool:
        return self in (MatchKind.PREFIX, MatchKind.SUFFIX)


@dataclass(frozen=True, slots=True)
class JobMatch:
    """The jobs that a word names: one job, or the jobs of an array in the order of submission."""

    word: str
    kind: MatchKind
    jobs: tuple[Job, ...]


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

    def live_jobs(self) -> list[Job]:
        """All jobs that are not over, in order of submission."""
        return list(self._reader.jobs.values())

    def get(self, job_id: JobId) -> Job | None:
        return self.live(job_id) or self._store.job(job_id)

    def is_over(self, job_id: JobId) -> bool:
        """Whether the job has ended and its end is in the store."""
        if self.live(job_id) is not None:
            return False
        job = self._store.job(job_id)
        return job is None or isinstance(job.phase, Ended)

    def match(self, caller: Caller, word: str) -> JobMatch:
        """The job or the array that the word names."""
        return match_word(word, caller, reader=self._reader, store=self._store)

    async def match_async(self, caller: Caller, word: str) -> JobMatch:
        """As `match`, without blocking the event loop. The id of a live job needs no thread."""
        live = self.live(JobId(word)) if may_name(caller, word) else None
        if live is not None:
            return JobMatch(word, MatchKind.ID, (live,))
        return await STORE.run(self.match, caller, word)

    def find(self, caller: Caller, word: str) -> Job:
        return _only_job(self.match(caller, word))

    async def find_async(self, caller: Caller, word: str) -> Job:
        """Find a job without blocking the event loop."""
        return _only_job(await self.match_async(caller, word))

    async def find_to_change(self, caller: Caller, word: str) -> Job:
        """A job that this caller may change. A part of an id is not enough."""
        require_write(caller)
        match = await self.match_async(caller, word)
        job = _only_job(match)
        require_owner_or_admin(caller, job)
        require_whole(match)
        return job

    def find_readable(self, caller: Caller, word: str) -> Job:
        """A job whose logs and measurements this caller may read."""
        job = self.find(caller, word)
        require_owner_or_admin(caller, job)
        return job

    def find_owned(self, caller: Caller, word: str) -> Job:
        """A job whose processes the caller may reach. Tokens that only read, and tokens of jobs,
        are not enough."""
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
        return unpack(submission)

    def changed(self) -> Coroutine[Any, Any, object]:
        """Wait for the next change, after this call, of any job that is in the store."""
        return self._reader.changed()


def match_word(word: str, caller: Caller, *, reader: JobReader, store: Store) -> JobMatch:
    """The job or the array that a word names, in the order of the module's docstring."""
    if not word:
        raise UserError("the name of the job is empty", "give the id or the name of a job")
    if not may_name(caller, word):
        raise NotFoundError(f"no job {word[:40]!r}", "this token is for one job only")
    exact = reader.job(JobId(word)) or store.job(JobId(word))
    if exact is not None:
        return JobMatch(word, MatchKind.ID, (exact,))
    for user in (caller.user, ""):
        if named := _named(word, user, store=store):
            return named
    for user in (caller.user, ""):
        if partial := _by_part_of_id(word, user, store=store):
            return partial
    own = [job.spec.name for job in store.jobs(JobFilter(user=caller.user)).jobs]
    names = dict.fromkeys(name for each in own for name in (each, array_name(each)))
    hint = did_you_mean(word, names) or (PRUNED if is_job_id(word) else LIST_ALL)
    raise NotFoundError(f"no job {word[:40]!r}", hint)


def require_whole(match: JobMatch) -> None:
    """Raises if the word is only a part of an id: a change could hit another job than the one that
    the user means."""
    if match.kind.is_partial:
        raise PartialIdError(match)


def describe_state(job: Job) -> str:
    """The state of a job as half a sentence."""
    if job.state is JobState.CANCELLED:
        return "it was cancelled"
    return f"it has {job.state}" if isinstance(job.phase, Ended) else f"it is {job.state}"


def array_name(name: str) -> str:
    """The name of the array of a job; the job's own name if it belongs to no array."""
    return name.partition("[")[0]


def _only_job(match: JobMatch) -> Job:
    if match.kind is MatchKind.ARRAY:
        example = match.jobs[0].spec.name
        what = f"'{shown(match.word)}' is an array of {len(match.jobs)} jobs"
        raise ArrayError(what, f"name one of its jobs, such as '{example}'")
    return match.jobs[0]


def _named(word: str, user: str, *, store: Store) -> JobMatch | None:
    """The job or the array of this name: the one that is not over, else the newest. None: no job
    has this name."""
    single = _jobs_named(word, user, store=store)
    members = _newest_array(word, user, store=store)
    are_live = [not isinstance(job.phase, Ended) for job in single]
    if not members:
        return _single(word, single) if single else None
    array = JobMatch(word, MatchKind.ARRAY, members)
    if not single:
        return array
    is_array_live = any(not isinstance(job.phase, Ended) for job in members)
    if any(are_live) and is_array_live:
        raise AmbiguousError(
            f"'{shown(word)}' could be job {single[0].id} ({single[0].state}) or an array of"
            f" {len(members)} jobs",
            f"give the id of the job, or a job of the array, such as '{members[0].spec.name}'",
        )
    is_array_newer = single[0].submitted_s < members[0].submitted_s
    if is_array_live or (is_array_newer and not any(are_live)):
        return array
    return _single(word, single)


def _single(word: str, found: Sequence[Job]) -> JobMatch:
    return JobMatch(word, MatchKind.NAME, (_require_one(word, found),))


def _jobs_named(word: str, user: str, *, store: Store) -> Sequence[Job]:
    """The jobs of this name that are not over, else the newest one."""
    wanted = JobFilter(user=user, word=word)
    named = [job for job in store.jobs(wanted).jobs if job.spec.name == word]
    if not named:
        return ()
    live = store.jobs(replace(wanted, states=LIVE)).jobs
    return [job for job in live if job.spec.name == word] or named[:1]


def _newest_array(word: str, user: str, *, store: Store) -> tuple[Job, ...]:
    """The jobs of the newest array of this name."""
    wanted = JobFilter(user=user, word=f"{word}[")
    found: list[Job] = []
    before: int | None = None
    while True:
        page = store.jobs(wanted, before=before, limit=PAGE)
        same = [job for job in page.jobs if _is_same_array(job, (found or page.jobs)[0])]
        found += same
        before = page.next
        if before is None or len(same) < len(page.jobs):
            return tuple(reversed(found))


def _is_same_array(job: Job, other: Job) -> bool:
    """An array that an earlier version stored has no id: its jobs have one time of submission."""
    mine, others = (each.spec.array or each.submitted_s for each in (job, other))
    return (mine, job.spec.user) == (others, other.spec.user)


def _by_part_of_id(word: str, user: str, *, store: Store) -> JobMatch | None:
    found = store.jobs(JobFilter(user=user, word=word)).jobs
    starting = [job for job in found if job.id.startswith(word) and len(word) >= MIN_PREFIX]
    if starting:
        return JobMatch(word, MatchKind.PREFIX, (_require_one(word, starting),))
    ending = [job for job in found if job.id.endswith(word)]
    return JobMatch(word, MatchKind.SUFFIX, (_require_one(word, ending),)) if ending else None


def _require_one(word: str, found: Sequence[Job]) -> Job:
    if len(found) != 1:
        some = ", ".join(f"{job.id} ({job.spec.name}, {job.state})" for job in found[:5])
        more = ", ..." if len(found) > 5 else ""
        hint = "give the id" if found[0].spec.name == word else "give more of the id"
        raise AmbiguousError(f"{word[:40]!r} could be {some}{more}", hint)
    return found[0]
