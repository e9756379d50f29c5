"""Events: facts that the kernel is told. An event about workers carries a fence (job and attempt).

Workers have numbers that are used once in an attempt. Events may arrive late, twice, or out of
order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rota.core.model.job import JobId, JobSpec
from rota.core.model.node import Node, NodeId


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A job was accepted. `reason` adds details for the job's history, here and in the three events
    below."""

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
    """A user set the size, in units; None returns the choice to the policy."""

    job_id: JobId
    workers: int | None
    actor: str = ""


@dataclass(frozen=True, slots=True)
class JobEdited:
    """A user changed fields of the job's spec. A field that is None stays as it is. The last three
    change only while the job holds no slots."""

    job_id: JobId
    actor: str = ""
    name: str | None = None
    priority: int | None = None
    time_limit_s: float | None = None
    retries: int | None = None
    retry_on: frozenset[int] | None = None
    gpu_types: tuple[str, ...] | None = None
    cpus: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class WorkersStarted:
    job_id: JobId
    attempt: int
    workers: frozenset[int]


@dataclass(frozen=True, slots=True)
class WorkersExited:
    """Workers exited: worker number -> exit code. The code of a worker that signal s ended is 128 +
    s.

    `reason` is the engine's explanation (no such program, killed after its grace period). `finding`
    names a known failure that the log shows. `is_retriable` means that the failure has an external
    cause and a retry may succeed.
    """

    job_id: JobId
    attempt: int
    codes: Mapping[int, int]
    reason: str = ""
    finding: str = ""
    is_retriable: bool = False


@dataclass(frozen=True, slots=True)
class WorkersLost:
    """Workers are gone without an exit code: their node died, or the engine does not know them.
    `reason` is the engine's explanation. `is_refused` means that the node cannot run the workers,
    but another node may."""

    job_id: JobId
    attempt: int
    workers: frozenset[int]
    reason: str = ""
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The command that starts the workers of this generation could not be executed: for example,
    the disk is full. The cause is not the program. Some of the workers may have started."""

    job_id: JobId
    attempt: int
    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class WorkersHindered:
    """Workers that were ordered cannot start yet; they may still start later."""

    job_id: JobId
    attempt: int
    workers: frozenset[int]
    reason: str


@dataclass(frozen=True, slots=True)
class WorkersSilent:
    """Workers block the other workers of their job and no longer report: they hang, or they do not
    leave although the others continued without them."""

    job_id: JobId
    attempt: int
    workers: frozenset[int]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WorkerSlow:
    """The other workers wait for this worker in each step. The kernel replaces it."""

    job_id: JobId
    attempt: int
    worker: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NewcomersMissing:
    """New workers exited with code 0 but never joined the training group."""

    job_id: JobId
    attempt: int
    workers: frozenset[int]


@dataclass(frozen=True, slots=True)
class JobRemarked:
    """A note for the job's history that changes nothing else."""

    job_id: JobId
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class WorkersFound:
    """An engine found running workers without a query: after a restart of the daemon, or on a node
    that is back. They may belong to a current attempt or to none."""

    job_id: JobId
    attempt: int
    workers: frozenset[int]


@dataclass(frozen=True, slots=True)
class Bug:
    """An error that no code expects occurred in the work for one job. The kernel holds the job,
    so that the error does not occur again and again; all other jobs continue."""

    job_id: JobId
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class MembershipChanged:
    """This generation is established: its members finished their first collective operation, and
    the workers that it leaves out are gone. `pause_s` is how long the program paused for the
    change, if measured."""

    job_id: JobId
    attempt: int
    generation: int
    pause_s: float | None = None


@dataclass(frozen=True, slots=True)
class ProgressReported:
    """A training program reports its progress: the epochs done so far, the duration of the newest
    epoch (`epoch_s`), and the GPU memory in use.

    `saved` is the number of epochs that a checkpoint holds; without it, all whole epochs count as
    saved. `hears` means that the program stops by itself when asked, for the rest of its attempt.
    `epochs_total` is the number of epochs that the program will do; it overrides the user's number.
    `start_s` is the time from the start to the first step, including loading; `save_s` and `load_s`
    are the durations of the newest save and load.
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
    """A node is new, back, or changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """A node accepts no new workers; its workers move to other nodes."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node is permanently gone, with all its workers."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time that the kernel asked to be woken at has come."""


JobEvent = (
    JobCancelled
    | JobHeld
    | JobReleased
    | JobResized
    | JobEdited
    | WorkersStarted
    | WorkersExited
    | WorkersLost
    | StartFailed
    | WorkersHindered
    | WorkersSilent
    | WorkerSlow
    | NewcomersMissing
    | JobRemarked
    | Bug
    | MembershipChanged
    | ProgressReported
)
NodeEvent = NodeSeen | NodeDrained | NodeLost
Event = JobSubmitted | JobEvent | WorkersFound | NodeEvent | TimerFired
