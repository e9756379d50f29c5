"""Selects the jobs of a request that cancels, holds or releases many jobs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from rota.core.lifecycle.states import JobState
from rota.core.model.events import JobCancelled, JobEvent, JobHeld, JobReleased
from rota.core.model.job import Ended, Job, JobId
from rota.daemon.access.authorization import Caller, require_change_of, require_owner_or_admin
from rota.daemon.jobs.job_lookup import (
    LIVE,
    JobDirectory,
    JobMatch,
    MatchKind,
    PartialIdError,
    array_name,
    describe_state,
    require_whole,
)
from rota.errors import UserError, shown
from rota.wire.job_changes import JobProblem, JobSelection


class JobAction(StrEnum):
    """What a request does with its jobs."""

    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"

    @property
    def event(self) -> Callable[[JobId, str, str], JobEvent]:
        """Makes the event from the job, the actor and the reason."""
        return EVENTS[self]


EVENTS: dict[JobAction, Callable[[JobId, str, str], JobEvent]] = {
    JobAction.CANCEL: JobCancelled,
    JobAction.HOLD: JobHeld,
    JobAction.RELEASE: JobReleased,
}


@dataclass(slots=True)
class SelectedJobs:
    """The jobs of a request, each once, and the words that name no job that it may change.
    `n_ended` counts jobs of arrays that have ended."""

    by_id: dict[JobId, Job] = field(default_factory=dict[JobId, Job])
    problems: list[JobProblem] = field(default_factory=list[JobProblem])
    n_ended: int = 0

    @property
    def jobs(self) -> list[Job]:
        return list(self.by_id.values())

    def add(self, match: JobMatch) -> None:
        for job in match.jobs:
            if match.kind is MatchKind.ARRAY and isinstance(job.phase, Ended):
                self.n_ended += 1
            else:
                self.by_id[job.id] = job


async def select_jobs(
    directory: JobDirectory, caller: Caller, *, selection: JobSelection, action: JobAction
) -> SelectedJobs:
    """The jobs that a selection means. Raises for a word that is only a part of an id."""
    if selection.has_filter and selection.jobs:
        raise UserError("a request names jobs or filters jobs, not both", "leave out one of them")
    if selection.has_filter:
        jobs = _filtered(directory.live_jobs(), caller, selection=selection)
        return SelectedJobs({job.id: job for job in jobs})
    if not selection.jobs:
        raise UserError("the request names no job", "name jobs, or select them by a filter")
    found = SelectedJobs()
    for word in dict.fromkeys(selection.jobs):
        try:
            match = await directory.match_async(caller, word)
            _check(match, caller, action=action, accepts_part=selection.partial)
        except PartialIdError:
            raise
        except UserError as error:
            found.problems.append(JobProblem(word, error.code, error.message, error.hint))
        else:
            found.add(match)
    return found


def _check(match: JobMatch, caller: Caller, *, action: JobAction, accepts_part: bool) -> None:
    """Raises unless the caller may change the jobs. All jobs of an array have one owner."""
    require_owner_or_admin(caller, match.jobs[0])
    if not accepts_part:
        require_whole(match)
    if match.kind is not MatchKind.ARRAY and action is not JobAction.CANCEL:
        require_not_over(match.jobs[0])


def _filtered(jobs: list[Job], caller: Caller, *, selection: JobSelection) -> list[Job]:
    """The jobs that have not ended and match all filters."""
    user = selection.user or caller.user
    require_change_of(caller, user)
    states = frozenset(_live_state(each) for each in selection.states) or LIVE
    name = _pattern(selection.name)
    return [
        job
        for job in jobs
        if job.spec.user == user
        and job.state in states
        and (name.fullmatch(job.spec.name) or name.fullmatch(array_name(job.spec.name)))
    ]


def _live_state(text: str) -> JobState:
    names = ", ".join(sorted(LIVE))
    if text not in LIVE:
        raise UserError(f"'{shown(text)}' is no state of a job that has not ended", f"use {names}")
    return JobState(text)


def _pattern(text: str) -> re.Pattern[str]:
    """`*` stands for any text, `?` for one character; empty: every name."""
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(each, re.escape(each)) for each in text or "*"))


def require_not_over(job: Job) -> None:
    if isinstance(job.phase, Ended):
        raise UserError(f"job {job.id} is over: {describe_state(job)}")


def rank_by_age(job: Job) -> tuple[float, JobId]:
    return job.submitted_s, job.id
