"""A job as it is asked for, and as it is answered."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.wire.training import WorkerFigure

VERSION = "v1"
LIVE_STATES = ("held", "queued", "starting", "running", "stopping")
FINAL_STATES = ("succeeded", "failed", "cancelled")
STATES = LIVE_STATES + FINAL_STATES


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a job file says, and what the flags of `rota submit` become.

    Amounts are text as people write them: `gpus` "2", "1..4", "1..4@2" or "0.5"; memory "6GiB";
    times "90", "90s", "15m", "2h", "1d". Empty or None: the site's default, else none.
    """

    command: list[str]
    name: str = ""
    project: str = ""
    gpus: str = ""
    gpus_per_worker: int = 0
    gpu_memory: str = ""
    gpu_types: list[str] = field(default_factory=list[str])
    node_labels: dict[str, str] = field(default_factory=dict[str, str])
    cpus: float = 0.0
    memory: str = ""
    priority: int = 0
    mode: str = "fixed"
    epochs: float | None = None
    hours: float | None = None
    category: str = ""
    env: dict[str, str] = field(default_factory=dict[str, str])
    workdir: str = ""
    umask: int | None = None
    image: str = ""
    mounts: list[str] = field(default_factory=list[str])
    ports: list[str] = field(default_factory=list[str])
    snapshot: str = ""
    time_limit: str = ""
    retries: int = 0
    retry_on: list[int] = field(default_factory=list[int])
    grace: str = ""
    after: list[str] = field(default_factory=list[str])
    array: str = ""
    hold: bool = False


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker of an attempt, and how it ended, once it has."""

    worker: int
    node: str
    gpus: list[int]
    share_bytes: int = 0
    started_s: float | None = None
    exit_code: int | None = None
    ended_s: float | None = None
    cards: list[str] = field(default_factory=list[str])
    """The names of its GPUs, where its node picks them, for as long as that remembers it."""


@dataclass(frozen=True, slots=True)
class AttemptView:
    attempt: int
    started_s: float
    ended_s: float | None
    outcome: str
    reason: str
    workers: list[WorkerView]


@dataclass(frozen=True, slots=True)
class JobView:
    """A line of `rota list`. `reason` says why it waits, why it ended as it did, or why
    one that runs has the size that it has, where that was not the policy's choice.

    `progress` is the part that is done, 0 to 1, of a job that tells. `finish_s` is when it will be
    over, `remaining_s` from now; `finish_error` is the relative error of `remaining_s`. What cannot
    be told is None.
    """

    id: str
    name: str
    user: str
    project: str
    state: str
    reason: str
    priority: int
    gpus: str
    gpus_held: float
    nodes: list[str]
    attempt: int
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    running_s: float
    epochs: float | None
    epochs_done: float
    progress: float | None = None
    remaining_s: float | None = None
    finish_s: float | None = None
    finish_error: float | None = None


@dataclass(frozen=True, slots=True)
class JobDetails:
    """All about a job. `request` is what was asked for, its environment for the owner only.

    `epochs_saved` is what a stop cannot take, `lost_s` how long the work took that stops did take.
    `metrics` are the newest. `hint` is what may help against the failure that the newest attempt
    ended with, or what its owner could do so that more is known, or less lost.
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


@dataclass(frozen=True, slots=True)
class StoryEntry:
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
    """Some output of a worker; bytes that are not UTF-8 are replaced, unless it is `exact`: then
    each byte is one character. `mark` is where it ends, for `LogRange.after`."""

    at_s: float
    attempt: int
    worker: int
    text: str
    mark: str = ""


@dataclass(frozen=True, slots=True)
class LogRange:
    """Which output: of one worker or of all, of one attempt or the newest, the last `tail` lines,
    what came after `since_s`, and with `follow` what comes until the end. `after` holds the marks
    of the newest pieces, one of each worker, that somebody has who goes on reading."""

    worker: int | None = None
    attempt: int | None = None
    tail: int | None = None
    since_s: float = 0.0
    follow: bool = False
    exact: bool = False
    after: list[str] = field(default_factory=list[str])
