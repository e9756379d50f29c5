"""Which job a word means: its id, its name, or the beginning or end of its id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rota.core.kernel import Kernel
from rota.core.model import Ended, Job, JobId
from rota.core.states import State
from rota.daemon.people import Caller, Reach
from rota.errors import UserError, meant
from rota.store.base import Store
from rota.store.records import JobFilter
from rota.wire.jobs import LIVE_STATES

LIVE = frozenset(State(each) for each in LIVE_STATES)


class NotFoundError(UserError):
    """There is no such thing, or none that this caller may know of."""

    code = "not_found"


class AmbiguousError(UserError):
    code = "ambiguous"


class ArrayError(UserError):
    """The name of an array where one job is wanted."""

    code = "array"


def find_job(word: str, caller: Caller, *, kernel: Kernel, store: Store) -> Job:
    """One's own jobs come first. A name means the one that is not over, else the newest."""
    if caller.reach is Reach.JOB and word != caller.job_id:
        raise NotFoundError(f"no job {word[:40]!r}", "this token is for one job only")
    exact = kernel.job(JobId(word)) or store.job(JobId(word))
    if exact is not None:
        return exact
    found = _candidates(word, caller.user, store=store)
    _require_no_array(word, caller.user, instead=found, store=store)
    found = found or _candidates(word, "", store=store)
    if not found:
        own = [job.spec.name for job in store.jobs(JobFilter(user=caller.user)).jobs]
        hint = meant(word, own) or "'rota list --all' shows every job"
        raise NotFoundError(f"no job {word[:40]!r}", hint)
    if len(found) != 1:
        some = ", ".join(f"{job.id} ({job.spec.name}, {job.state})" for job in found[:5])
        raise AmbiguousError(f"{word[:40]!r} could be {some}", "give more of the id")
    return found[0]


def standing(job: Job) -> str:
    """How it is with a job, as half a sentence."""
    if job.state is State.CANCELLED:
        return "it was cancelled"
    return f"it has {job.state}" if isinstance(job.phase, Ended) else f"it is {job.state}"


def _candidates(word: str, user: str, *, store: Store) -> Sequence[Job]:
    """The jobs of this name that are not over, or the newest; else those with such an id."""
    wanted = JobFilter(user=user, word=word)
    found = store.jobs(wanted).jobs
    named = [job for job in found if job.spec.name == word]
    if not named:
        return found
    live = store.jobs(replace(wanted, states=LIVE)).jobs
    return [job for job in live if job.spec.name == word] or named[:1]


def _require_no_array(word: str, user: str, *, instead: Sequence[Job], store: Store) -> None:
    """Raises for the name of an array, unless a job that is newer, or not over, has it."""
    array = store.jobs(JobFilter(user=user, word=f"{word}["), limit=1).jobs
    if not array or any(not isinstance(job.phase, Ended) for job in instead):
        return
    if not instead or instead[0].submitted_s < array[0].submitted_s:
        example = array[0].spec.name
        raise ArrayError(f"{word[:40]!r} is an array", f"name one of its jobs, as '{example}'")
