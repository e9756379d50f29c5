"""Responses about jobs: views of a job, its attempts, its history and its output."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.wire.job_request import JobRequest
from rota.wire.job_view import FINAL_STATES, LIVE_STATES, STATES, JobList, JobView
from rota.wire.training import WorkerFigure

__all__ = [
    "FINAL_STATES",
    "LIVE_STATES",
    "STATES",
    "AttemptView",
    "JobDetails",
    "JobList",
    "JobRequest",
    "JobView",
    "LogPiece",
    "LogRange",
    "StoryEntry",
    "WorkerView",
]


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker of an attempt. The exit code is None while the worker runs."""

    worker: int
    node: str
    gpus: list[int]
    share_bytes: int = 0
    started_s: float | None = None
    exit_code: int | None = None
    ended_s: float | None = None
    cards: list[str] = field(default_factory=list[str])
    """GPU names, where the node chooses the GPUs; empty when the node no longer reports them."""


@dataclass(frozen=True, slots=True)
class AttemptView:
    attempt: int
    started_s: float
    ended_s: float | None
    outcome: str
    reason: str
    workers: list[WorkerView]


@dataclass(frozen=True, slots=True)
class JobDetails:
    """The details of a job. `request` is the original request; only the owner sees its environment.

    `epochs_saved` are the epochs in the newest checkpoint. `lost_s` is the run time of work that
    stops have discarded. `metrics` are the newest values. `hint` is advice for the failure of the
    newest attempt, or how to get better estimates or lose less work.
    """

    job: JobView
    request: JobRequest
    attempts: list[AttemptView]
    failures: int
    gpu_s: float
    queued_s: float
    after: list[str]
    array_index: int | None = None
    epochs_saved: float = 0.0
    lost_s: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    stragglers: list[WorkerFigure] = field(default_factory=list[WorkerFigure])
    hint: str = ""
    after_any: list[str] = field(default_factory=list[str])
    after_failed: list[str] = field(default_factory=list[str])
    retries_left: int = 0


@dataclass(frozen=True, slots=True)
class StoryEntry:
    """One event in the history of a job: a state change from `before` to `after`."""

    number: int
    at_s: float
    job_id: str
    attempt: int
    before: str
    after: str
    cause: str
    reason: str
    actor: str


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A piece of a worker's output. Bytes that are not UTF-8 are replaced; with `LogRange.exact`,
    each byte is one character. `mark` is the position of its end, for `LogRange.after`."""

    at_s: float
    attempt: int
    worker: int
    text: str
    mark: str = ""


@dataclass(frozen=True, slots=True)
class LogRange:
    """Selects output: of one worker or all, of one attempt or the newest, the last `tail` lines,
    the output after `since_s`; with `follow`, also new output until the end. `after` holds the
    `mark` of the last piece of each worker, to continue an earlier read."""

    worker: int | None = None
    attempt: int | None = None
    tail: int | None = None
    since_s: float = 0.0
    follow: bool = False
    exact: bool = False
    after: list[str] = field(default_factory=list[str])
