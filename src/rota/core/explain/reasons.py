"""Every reason that rota gives for a wait or a size, as typed values with their text.

The sentences are in this module, so that their wording stays consistent. Details come as fields:
what is missing (`feasibility`), or why a node is unhealthy. A text is a phrase about the job, in
lower case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from rota.core.model.job import Job, JobId
from rota.core.model.node import NodeId
from rota.core.model.units import GIB

MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class WaitsForItsTurn:
    """Other jobs come first."""

    wanted: str
    n_ahead: int
    n_running: int

    def __str__(self) -> str:
        return (
            f"waits for {self.wanted}: {self.n_running} running, {self.n_ahead} ahead in the queue"
        )


@dataclass(frozen=True, slots=True)
class WaitsForARound:
    """The job was submitted, or may run, only since the last round."""

    def __str__(self) -> str:
        return "waits for the next scheduling round"


@dataclass(frozen=True, slots=True)
class Fragmented:
    """Enough GPUs are free, but not on nodes where the job can use them together."""

    gpus: int
    fits: int

    def __str__(self) -> str:
        return (
            f"fragmented: free GPUs are too scattered for {plural(self.gpus, 'GPU')}"
            f" ({self.fits} would fit)"
        )


@dataclass(frozen=True, slots=True)
class Protected:
    """The job that would have to be preempted has not reached its minimum run time."""

    victim: JobId
    until_s: float

    def __str__(self) -> str:
        return f"waits until {self.victim} reaches its minimum run time and can be preempted"


@dataclass(frozen=True, slots=True)
class Impossible:
    """The nodes cannot run the job, even when they are empty. `problem` says what is missing."""

    problem: str

    def __str__(self) -> str:
        return f"can never run on this cluster: {self.problem}"


@dataclass(frozen=True, slots=True)
class Drained:
    """No open node can run the job, but a drained, cordoned or tainted node may."""

    def __str__(self) -> str:
        return "waits for a drained or cordoned node to accept workers again"


@dataclass(frozen=True, slots=True)
class Occupied:
    """The job could run if other workloads ended or an unhealthy node recovered."""

    def __str__(self) -> str:
        return "waits for resources that other workloads hold, or for an unhealthy node"


@dataclass(frozen=True, slots=True)
class WaitsForUnhealthyNode:
    """The job may already run on this node, so that it cannot start elsewhere."""

    node: str
    note: str

    def __str__(self) -> str:
        return f"waits for node {self.node}, which {self.note}"


@dataclass(frozen=True, slots=True)
class RefusedByNodes:
    """The nodes with free capacity rejected the job."""

    nodes: tuple[NodeId, ...]
    why: str

    def __str__(self) -> str:
        n_more = len(self.nodes) - MAX_NAMED
        more = f" and {plural(n_more, 'other')}" if n_more > 0 else ""
        named = ", ".join(self.nodes[:MAX_NAMED]) + more
        return f"waits for another node or a later retry: {named} rejected it: {self.why}"


@dataclass(frozen=True, slots=True)
class BacksOff:
    """The job failed or lost its workers and waits before the next attempt."""

    until_s: float
    why: str = ""

    def __str__(self) -> str:
        why = f": {self.why}" if self.why else ""
        return f"waits before a retry{why}"


@dataclass(frozen=True, slots=True)
class WaitsForJobs:
    """The job depends on jobs that have not succeeded yet, or have not ended yet."""

    jobs: tuple[JobId, ...]
    ended: tuple[JobId, ...] = ()
    failed: tuple[JobId, ...] = ()

    def __str__(self) -> str:
        parts = ((self.jobs, "succeed"), (self.ended, "end"), (self.failed, "fail"))
        return "waits for " + ", and for ".join(
            f"{_some(jobs)} to {verb}" for jobs, verb in parts if jobs
        )


@dataclass(frozen=True, slots=True)
class WaitsForItsArray:
    """As many jobs of its array run as may run at once."""

    limit: int

    def __str__(self) -> str:
        return f"waits for its array, of which at most {plural(self.limit, 'job')} run at once"


@dataclass(frozen=True, slots=True)
class WaitsForUserLimit:
    """The user runs as many jobs without GPUs as one user may."""

    def __str__(self) -> str:
        return "waits for your other jobs: you run as many jobs without GPUs as one user may"


@dataclass(frozen=True, slots=True)
class Pinned:
    """The owner set the size."""

    gpus: int

    def __str__(self) -> str:
        return f"pinned to {plural(self.gpus, 'GPU')} by its owner"


@dataclass(frozen=True, slots=True)
class DoesNotGrow:
    """The size is capped, because a larger size was slower or new workers failed to join."""

    gpus: int
    why: str

    def __str__(self) -> str:
        return f"temporarily limited to {plural(self.gpus, 'GPU')}: {self.why}"


@dataclass(frozen=True, slots=True)
class OnHold:
    """A user or an internal error holds the job."""

    def __str__(self) -> str:
        return "held until a user releases it"


Reason = (
    OnHold
    | WaitsForItsTurn
    | WaitsForARound
    | Fragmented
    | Protected
    | Impossible
    | Drained
    | Occupied
    | WaitsForUnhealthyNode
    | RefusedByNodes
    | BacksOff
    | WaitsForJobs
    | WaitsForItsArray
    | WaitsForUserLimit
    | Pinned
    | DoesNotGrow
)


def public_text(reason: Reason) -> str:
    """The reason as other users see it: without text that a program, a node or a user wrote."""
    match reason:
        case BacksOff():
            return "waits before a retry"
        case RefusedByNodes():
            return "waits for another node or a later retry"
        case WaitsForUnhealthyNode(node):
            return f"waits for node {node}, which is unhealthy"
        case Impossible():
            return "can never run on this cluster"
        case DoesNotGrow(gpus):
            return f"temporarily limited to {plural(gpus, 'GPU')}"
        case WaitsForUserLimit():
            return "waits for other jobs of its user"
        case (
            OnHold()
            | WaitsForItsTurn()
            | WaitsForARound()
            | Fragmented()
            | Protected()
            | Drained()
            | Occupied()
            | WaitsForJobs()
            | WaitsForItsArray()
            | Pinned()
        ):
            return str(reason)
        case _:
            assert_never(reason)


def describe_request(job: Job) -> str:
    """The job's minimum request as text, such as `4 GPUs on 1 node, 8 CPUs per worker`."""
    spec = job.spec
    size = spec.gpus_of(spec.min_workers)
    text = plural(size, gpu_noun(spec.gpu_types) if spec.uses_gpus else "worker")
    if spec.share:
        text = f"a share of {text}" if size == 1 else f"a share of each of {text}"
    if spec.max_nodes and size > 1:
        text += f" on {plural(spec.max_nodes, 'node')}"
    others = [plural(spec.cpus, "CPU")] if spec.cpus else []
    others += [f"{spec.memory_bytes / GIB:g} GiB"] if spec.memory_bytes else []
    if others:
        text += f", {' and '.join(others)} per worker"
    labels = " and ".join(f"{key}={value}" for key, value in sorted(spec.node_labels))
    return text + (f" on {labels}" if labels else "")


def _some(jobs: tuple[JobId, ...]) -> str:
    n_more = len(jobs) - MAX_NAMED
    return ", ".join(jobs[:MAX_NAMED]) + (f" and {plural(n_more, 'other')}" if n_more > 0 else "")


def gpu_noun(gpu_types: tuple[str, ...]) -> str:
    return f"{' or '.join(gpu_types)} GPU".lstrip()


def plural(count: float, noun: str) -> str:
    return f"{count:g} {noun}{'' if count == 1 else 's'}"
