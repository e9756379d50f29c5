"""What a store keeps besides the scheduler's own values, and the shapes of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rota.core.effects import Transition
from rota.core.model import Job, JobId, Node, Slot
from rota.core.speed import SpeedModel
from rota.core.states import State


@dataclass(frozen=True, slots=True)
class Submission:
    """What came with a job and never changes: who sent it, and what it runs.

    `program` is JSON text that the store does not look into. A user's `key` names one job for
    ever, so that a submit that is sent again finds the job it already made.
    """

    job_id: JobId
    user: str
    uid: int
    program: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker of an attempt: when it joined, where, and how it ended, once it has."""

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
    """One life of a job; `outcome` is the state that it ended in."""

    job_id: JobId
    number: int
    started_s: float
    ended_s: float | None = None
    outcome: State | None = None
    reason: str = ""
    workers: tuple[Worker, ...] = ()


@dataclass(frozen=True, slots=True)
class Exit:
    """A worker's exit code, as the engine told it."""

    job_id: JobId
    attempt: int
    worker: int
    code: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the audit log. `number` grows, without meaning, from entry to entry."""

    number: int
    transition: Transition
    actor: str = ""


@dataclass(frozen=True, slots=True)
class Project:
    """Whom jobs are charged to; quota, weight and limits are JSON text in `settings`."""

    name: str
    parent: str | None = None
    settings: str = "{}"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    uid: int | None = None
    project: str = ""
    is_admin: bool = False


class Scope(StrEnum):
    """What a token opens."""

    USER = "user"
    READ_ONLY = "read_only"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it rests: its hash, never itself."""

    id: str
    sha256: str
    user: str
    scope: Scope
    created_s: float
    job_id: JobId | None = None
    expires_s: float | None = None
    revoked_s: float | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """GPU seconds that a person used for a project: all of them, and as they have decayed."""

    project: str
    user: str
    gpu_s: float
    decayed_gpu_s: float
    as_of_s: float


@dataclass(frozen=True, slots=True)
class Profile:
    """What the jobs of a category measured."""

    category: str
    speed: SpeedModel
    updated_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    """How a job trained around a moment, as one of its workers told it. What nobody told is 0."""

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


Row = Project | User | Token | Usage | Profile
"""What is put whole, by its own key, and read back as a list."""


def key_of(row: Row) -> tuple[str, ...]:
    """What a row of its kind is known by."""
    match row:
        case Token(id=key) | Project(name=key) | User(name=key) | Profile(category=key):
            return (key,)
        case Usage():
            return (row.project, row.user)


@dataclass(frozen=True, slots=True)
class Saved:
    """What `Kernel.recover` goes on from."""

    jobs: tuple[Job, ...]
    nodes: tuple[Node, ...]
    outcomes: Mapping[JobId, State]


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list. Empty fields ask for nothing; `word` is the whole name of a job,
    the name of an array and a `[`, or the beginning or the end of an id."""

    states: frozenset[State] = frozenset()
    user: str = ""
    project: str = ""
    word: str = ""


ALL = JobFilter()


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs, the newest first. `next` asks for those after them; None if there are none."""

    jobs: tuple[Job, ...]
    next: int | None = None
