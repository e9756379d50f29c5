"""The response to a dry run of a submit."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.wire.job_view import JobView


@dataclass(frozen=True, slots=True)
class PlannedSlot:
    """A place where a worker would start: a node and the indices of its GPUs there."""

    node: str
    gpus: list[int]


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A job that would lose or exchange GPUs: `change` is `preempted`, `shrunk` or `moved`."""

    id: str
    name: str
    user: str
    change: str
    gpus_before: float
    gpus_after: float


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What the next scheduling round would do with a job; of an array, with its first job.

    `count` is the number of jobs of the array. A job that starts has `slots` and `gpus`; a job that
    waits has a `reason`. `ahead` has the first of the `ahead_count` jobs that wait for GPUs of the
    same type and come first. `changes` are the jobs that lose or exchange GPUs in that round.
    Unknown times are None.
    """

    job: JobView
    count: int
    starts_now: bool
    gpus: float
    slots: list[PlannedSlot]
    reason: str
    start_s: float | None
    finish_s: float | None
    finish_error: float | None
    ahead_count: int
    ahead: list[JobView] = field(default_factory=list[JobView])
    changes: list[PlannedChange] = field(default_factory=list[PlannedChange])


@dataclass(frozen=True, slots=True)
class SubmitPlan:
    """The plans of the first requests of a submit. `count` is the number of all its jobs, which
    were all checked."""

    count: int
    plans: list[JobPlan]
