"""Records that a store keeps besides the values of the scheduler, and the results of queries.

The names and the order of the fields are part of the stored formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rota.core.estimation.speed_model import SpeedModel
from rota.core.lifecycle.states import JobState
from rota.core.model.allocation import Slot
from rota.core.model.effects import Transition
from rota.core.model.job import Job, JobId
from rota.core.model.node import Node


@dataclass(frozen=True, slots=True)
class Submission:
    """The immutable part of a submit: the user and the program.

    `program` is JSON text that the store does not parse. `key` is the idempotency key: a user's key
    names one job as long as the job is kept, so that a repeated submit finds the job that the first
    submit created. `common` is the part of the program, also JSON text, that other submissions
    repeat: a store may keep it once. Empty if the program is whole.
    """

    job_id: JobId
    user: str
    uid: int
    program: str
    key: str | None = None
    common: str = ""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker of an attempt: its generation, its slot, and its exit once it has exited."""

    job_id: JobId
    attempt: int
    number: int
    generation: int
    slot: Slot
    ordered_s: float | None = None
    exit_code: int | None = None
    exited_s: float | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a job. `outcome` is the state of the job after the attempt."""

    job_id: JobId
    number: int
    started_s: float
    ended_s: float | None = None
    outcome: JobState | None = None
    reason: str = ""
    workers: tuple[Worker, ...] = ()


@dataclass(frozen=True, slots=True)
class Exit:
    """The exit code of a worker, as the engine reported it."""

    job_id: JobId
    attempt: int
    worker: int
    code: int
    at_s: float


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line of the audit log. `number` increases from entry to entry; gaps are possible."""

    number: int
    transition: Transition
    actor: str = ""


@dataclass(frozen=True, slots=True)
class Project:
    """A project that jobs are charged to. `settings` is JSON text: quota, weight and limits."""

    name: str
    parent: str | None = None
    settings: str = "{}"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    uid: int | None = None
    project: str = ""
    is_admin: bool = False


class TokenScope(StrEnum):
    """What the bearer of a token may do."""

    USER = "user"
    READ_ONLY = "read_only"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Token:
    """An access token. The store keeps the hash of the secret, never the secret."""

    id: str
    sha256: str
    user: str
    scope: TokenScope
    created_s: float
    job_id: JobId | None = None
    expires_s: float | None = None
    revoked_s: float | None = None


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """GPU seconds that a user consumed in a project: in total, and with decay."""

    project: str
    user: str
    gpu_s: float
    decayed_gpu_s: float
    as_of_s: float


@dataclass(frozen=True, slots=True)
class ProfileRecord:
    """The speed model that the jobs of a category measured."""

    category: str
    speed: SpeedModel
    updated_s: float


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """Training progress of a job at one time, as a worker reported it. Unreported numbers are 0."""

    job_id: JobId
    attempt: int
    at_s: float
    worker: int
    workers: int
    epochs_done: float
    step_s: float = 0.0
    samples_per_s: float = 0.0
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])


Row = Project | User | Token | UsageRecord | ProfileRecord
"""Records that a store replaces as a whole, by their key, and returns as a list."""


def key_of(row: Row) -> tuple[str, ...]:
    """Return the primary key of a row."""
    match row:
        case Token(id=key) | Project(name=key) | User(name=key) | ProfileRecord(category=key):
            return (key,)
        case UsageRecord():
            return (row.project, row.user)


@dataclass(frozen=True, slots=True)
class SavedState:
    """The state that `Kernel.recover` starts from."""

    jobs: tuple[Job, ...]
    nodes: tuple[Node, ...]
    outcomes: Mapping[JobId, JobState]
    unreadable: Mapping[JobId, str] = field(default_factory=dict[JobId, str])
    """Jobs that have not ended and whose rows cannot be read, with the reason. The rows stay."""


MIN_PREFIX = 4
"""A shorter word is not compared with the beginnings of ids: a few characters name a long time."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list. An empty field matches every job.

    `word` matches the whole name of a job, the name of an array followed by `[`, the beginning of
    an id if it has at least `MIN_PREFIX` characters, or the end of an id.
    """

    states: frozenset[JobState] = frozenset()
    user: str = ""
    project: str = ""
    word: str = ""


ALL = JobFilter()


@dataclass(frozen=True, slots=True)
class StoredJobPage:
    """A page of jobs, newest first. `next` is the cursor of the next page; None on the last."""

    jobs: tuple[Job, ...]
    next: int | None = None
