"""Requests that change jobs, and their results."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.wire.job_view import JobView


@dataclass(frozen=True, slots=True)
class JobSelection:
    """The jobs of a request: those that `jobs` names, or the jobs that have not ended and match all
    given filters. Without `user`, the filters select the caller's own jobs.

    `name` may contain `*` and `?`. A word in `jobs` that is only a part of an id is refused unless
    `partial` is set. With `dry_run` nothing changes. `reason` is for the history of the jobs.
    """

    jobs: list[str] = field(default_factory=list[str])
    all_jobs: bool = False
    states: list[str] = field(default_factory=list[str])
    name: str = ""
    user: str = ""
    partial: bool = False
    dry_run: bool = False
    reason: str = ""

    @property
    def has_filter(self) -> bool:
        return bool(self.all_jobs or self.states or self.name or self.user)


@dataclass(frozen=True, slots=True)
class JobEdit:
    """New values of the fields of a job that may be edited, written as in `JobRequest`. A field
    that is None stays as it is; an empty value means the same as in a submit."""

    name: str | None = None
    gpu_types: list[str] | None = None
    cpus: float | None = None
    memory: str | None = None
    priority: int | None = None
    time_limit: str | None = None
    retries: int | None = None
    retry_on: list[int] | None = None


@dataclass(frozen=True, slots=True)
class JobProblem:
    """Why a word of a request changed nothing."""

    word: str
    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ChangedJobs:
    """The jobs of a request after the change. `n_ended` jobs of arrays had ended before and are not
    in `jobs`."""

    jobs: list[JobView]
    problems: list[JobProblem] = field(default_factory=list[JobProblem])
    n_ended: int = 0
