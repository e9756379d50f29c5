"""Facts that happened, as the kernel is told them. A fact about workers carries its fence.

Workers are known by numbers that are given once in an attempt. Facts may come late, twice or in
another order than they happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rota.core.model import JobId, JobSpec, Node, NodeId


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """Where there is more to tell than that somebody wanted it, a `reason` does; as with the
    three below."""

    job_id: JobId
    spec: JobSpec
    is_held: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobCancelled:
    job_id: JobId
    actor: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobHeld:
    job_id: JobId
    actor: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobReleased:
    job_id: JobId
    actor: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobResized:
    """Somebody wants the job to have just so many workers; None leaves that to the policy again."""

    job_id: JobId
    workers: int | None
    actor: str = ""


@dataclass(frozen=True, slots=True)
class JobPrioritised:
    """Somebody wants the job to come sooner or later than it would have."""

    job_id: JobId
    priority: int
    actor: str = ""


@dataclass(frozen=True, slots=True)
class WorkersStarted:
    job_id: JobId
    attempt: int
    workers: frozenset[int]


@dataclass(frozen=True, slots=True)
class WorkersExited:
    """Worker number -> exit code; a worker ended by signal s has the code 128 + s.

    What the code does not say comes in words: `reason` is the engine's (no such program, killed
    after its grace period), `finding` names a failure that the log shows. A failure that
    `is_retriable` is nobody's mistake and may well not come again.
    """

    job_id: JobId
    attempt: int
    codes: Mapping[int, int]
    reason: str = ""
    finding: str = ""
    is_retriable: bool = False


@dataclass(frozen=True, slots=True)
class WorkersLost:
    """Workers that are gone without an exit of their own: their node died, or nobody knows them.
    The engine may have a `reason` to give. Those that were `is_refused` cannot be on their node,
    and may well be on another."""

    job_id: JobId
    attempt: int
    workers: frozenset[int]
    reason: str = ""
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class WorkersHindered:
    """Workers that were ordered and cannot start yet; they may still."""

    job_id: JobId
    attempt: int
    workers: frozenset[int]
    reason: str


@dataclass(frozen=True, slots=True)
class WorkersSilent:
    """Workers that hold up the others of their job, and that nobody hears of any more: they
    froze, or do not leave although the others went on without them."""

    job_id: JobId
    attempt: int
    workers: frozenset[int]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WorkerSlow:
    """The others wait for this worker in each step: another is to come in its place."""

    job_id: JobId
    attempt: int
    worker: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NewcomersMissing:
    """Workers that ended as if all was well, and were never among those who train together."""

    job_id: JobId
    attempt: int
    workers: frozenset[int]


@dataclass(frozen=True, slots=True)
class JobRemarked:
    """Something that the owner is to find in the story, and that changes nothing."""

    job_id: JobId
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class WorkersFound:
    """Workers that an engine came upon without being asked: after a restart of the daemon, or on
    a node that is back. They may be ours, or nobody's any more."""

    job_id: JobId
    attempt: int
    workers: frozenset[int]


@dataclass(frozen=True, slots=True)
class MembershipChanged:
    """This generation stands: its members finished their first collective, and the workers that
    it leaves out are gone. `pause_s` is how long the program stood still for it, if measured."""

    job_id: JobId
    attempt: int
    generation: int
    pause_s: float | None = None


@dataclass(frozen=True, slots=True)
class ProgressReported:
    """Epochs done so far; with `epoch_s`, how long the newest took; memory seen on a card.

    `saved` is how many of them a checkpoint holds; a program that does not say keeps the whole
    ones. One that `hears` stops by itself when it is asked to, for the rest of its attempt.
    `epochs_total` is how many it will do, which it knows better than the user; `start_s` is how
    long it took from its start to its first step, with what it loaded; `save_s` and `load_s` what
    its newest save and load took.
    """

    job_id: JobId
    attempt: int
    epochs_done: float
    epoch_s: float | None = None
    memory_bytes: int = 0
    saved: float | None = None
    hears: bool = False
    epochs_total: float | None = None
    start_s: float | None = None
    save_s: float | None = None
    load_s: float | None = None


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node is there: new, back, or changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """No new work for this node; what runs there moves off."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node is gone for good and so are its workers."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The moment that the kernel asked to be woken at has come."""


JobEvent = (
    JobCancelled
    | JobHeld
    | JobReleased
    | JobResized
    | JobPrioritised
    | WorkersStarted
    | WorkersExited
    | WorkersLost
    | WorkersHindered
    | WorkersSilent
    | WorkerSlow
    | NewcomersMissing
    | JobRemarked
    | MembershipChanged
    | ProgressReported
)
NodeEvent = NodeSeen | NodeDrained | NodeLost
Event = JobSubmitted | JobEvent | WorkersFound | NodeEvent | TimerFired
