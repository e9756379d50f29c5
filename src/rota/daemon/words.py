"""Which job a word means: its id, its name, or the beginning or end of its id."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.kernel import Kernel
from rota.core.model import Ended, Job, JobId
from rota.daemon.people import Caller, Reach
from rota.errors import UserError, meant
from rota.store.base import Store
from rota.store.records import JobFilter


class NotFoundError(UserError):
    """There is no such thing, or none that this caller may know of."""

    code = "not_found"


class AmbiguousError(UserError):
    code = "ambiguous"


def find_job(word: str, caller: Caller, *, kernel: Kernel, store: Store) -> Job:
    """One's own jobs come first, and those that are not over."""
    if caller.reach is Reach.JOB and word != caller.job_id:
        raise NotFoundError(f"no job {word[:40]!r}", "this token is for one job only")
    exact = kernel.job(JobId(word)) or store.job(JobId(word))
    if exact is not None:
        return exact
    found: Sequence[Job] = store.jobs(JobFilter(user=caller.user, word=word)).jobs
    if not found:
        found = store.jobs(JobFilter(word=word)).jobs
    if not found:
        own = [job.spec.name for job in store.jobs(JobFilter(user=caller.user)).jobs]
        hint = meant(word, own) or "'rota list --all' shows every job"
        raise NotFoundError(f"no job {word[:40]!r}", hint)
    if len(found) > 1:
        live = [job for job in found if not isinstance(job.phase, Ended)]
        found = live if len(live) == 1 else found
    if len(found) != 1:
        some = ", ".join(f"{job.id} ({job.spec.name}, {job.state})" for job in found[:5])
        raise AmbiguousError(f"{word[:40]!r} could be {some}", "give more of the id")
    return found[0]
