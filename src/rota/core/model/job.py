"""Jobs: what a user requests (`JobSpec`), and everything that the scheduler knows about a job
(`Job`).

The data that belongs to a state lives on the state's own phase class (`Held`, `Queued`, `Starting`,
`Running`, `Stopping`, `Ended`). Stores write these classes by field name, so the field names must
not change.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NewType

from rota.core.estimation.speed_model import PRIOR, SpeedModel
from rota.core.lifecycle.states import JobState, Purpose
from rota.core.model.allocation import Allocation
from rota.core.model.node import DEFAULT_TOLERATIONS, Labels, NodeId


class Mode(StrEnum):
    """How a job handles a change of its workers: not at all, by a restart, by a new torchrun
    rendezvous, or live in the running processes."""

    FIXED = "fixed"
    RESTART = "restart"
    TORCHRUN = "torchrun"
    LIVE = "live"

    @property
    def resizes_in_place(self) -> bool:
        return self in (Mode.TORCHRUN, Mode.LIVE)


class Processes(StrEnum):
    """How the GPUs of a job become processes: one process on each node, with all GPUs of the job
    there, or one process for each unit of GPUs."""

    PER_NODE = "per-node"
    PER_GPU = "per-gpu"


@dataclass(frozen=True, slots=True)
class GpuShare:
    """A part of the memory of each GPU, given as a fraction of the GPU or in bytes."""

    fraction: float = 0.0
    memory_bytes: int = 0

    def bytes_on(self, card_bytes: int) -> int:
        """The size of the share on a GPU of this size, rounded down so that ten tenths fit."""
        return self.memory_bytes or max(1, int(self.fraction * card_bytes))


@dataclass(frozen=True, slots=True)
class Estimate:
    """The user's estimate of a job's duration: seconds on `workers` workers, and optionally the
    speed-ups (`speedups[n]` on n workers, `speedups[0]` = 0)."""

    seconds: float
    workers: int = 1
    speedups: tuple[float, ...] = ()


JobId = NewType("JobId", str)


@lru_cache(maxsize=10_000)
def _kind(*_values: object) -> object:
    """A new object for values that were not seen lately. It has no meaning besides its identity."""
    return object()


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a user requests, as far as the scheduler needs it.

    Sizes are numbers of units. A unit has `gpus` GPUs, or a `share` of one GPU; a job without GPUs
    has one unit for each worker. A worker is one process of the job: one unit, or all units of a
    node with `Processes.PER_NODE`. CPUs and memory are those of one worker. The names of the sizes
    are stored and say workers; they count units.
    """

    name: str
    user: str = ""
    project: str = ""
    priority: int = 0
    mode: Mode = Mode.RESTART
    min_workers: int = 1
    max_workers: int = 1
    requested_workers: int = 1
    start_units: int = 0
    """The size that the job starts with, if the user chose one; 0: the policy chooses."""
    gpus: int = 1
    share: GpuShare | None = None
    processes: Processes = Processes.PER_GPU
    max_nodes: int = 0
    """The most nodes that the job may use; 0: any number."""
    gpu_types: tuple[str, ...] = ()
    node_labels: Labels = frozenset()
    tolerations: frozenset[str] = DEFAULT_TOLERATIONS
    cpus: float = 0.0
    memory_bytes: int = 0
    epochs: float = 1.0
    estimate: Estimate | None = None
    category: str = ""
    retries: int = 0
    retry_on: frozenset[int] = frozenset()
    time_limit_s: float = math.inf
    min_runtime_s: float | None = None
    grace_s: float = 30.0
    after: tuple[JobId, ...] = ()
    after_any: tuple[JobId, ...] = ()
    after_failed: tuple[JobId, ...] = ()
    """Jobs that must have succeeded, that must have ended, and that must have ended with at least
    one failure: see `lifecycle.dependencies`."""
    array: str = ""
    """The id of the first job of the array that the job belongs to."""
    array_limit: int = 0
    """How many jobs of the array may run at once; 0: no limit."""
    kind: object = field(init=False, repr=False, compare=False)
    """One object for all jobs that make the same demands on nodes and have the same priority. A
    round asks for the kind of every job and looks for the nodes of each kind once."""

    def __post_init__(self) -> None:
        amounts = (self.gpus, self.share, self.cpus, self.memory_bytes, self.merges_units)
        nodes = (self.gpu_types, self.node_labels, self.tolerations, self.max_nodes)
        kind = _kind(self.priority, self.min_workers, *amounts, *nodes)
        object.__setattr__(self, "kind", kind)

    @property
    def dependencies(self) -> tuple[JobId, ...]:
        """All jobs that the job waits for."""
        return self.after + self.after_any + self.after_failed

    @property
    def uses_gpus(self) -> bool:
        return self.gpus > 0 or self.share is not None

    @property
    def merges_units(self) -> bool:
        """Whether all units on a node are one worker."""
        return self.processes is Processes.PER_NODE and self.uses_gpus

    @property
    def unit_gpus(self) -> int:
        """The GPUs of a unit. A share of a GPU counts as one, a unit without GPUs as none."""
        return 1 if self.share is not None else self.gpus

    def gpus_of(self, units: int) -> int:
        """The GPUs of so many units, as users count them; for a job without GPUs its workers."""
        return units * (self.unit_gpus or 1)

    def units_in(self, allocation: Allocation) -> int:
        """The size of an allocation of the job, in units."""
        if not self.merges_units:
            return len(allocation)
        return sum(len(slot.gpus) for slot in allocation) // self.unit_gpus


@dataclass(frozen=True, slots=True)
class Held:
    """The job waits until a user releases it."""

    since_s: float
    state = JobState.HELD


@dataclass(frozen=True, slots=True)
class Queued:
    """The job waits. `not_before_s` is the end of a back-off, and `reason` is its cause.
    `is_resizing` means that the job stopped only to start again at another size, so that its
    current run continues."""

    since_s: float
    not_before_s: float = 0.0
    is_resizing: bool = False
    reason: str = ""
    state = JobState.QUEUED


@dataclass(frozen=True, slots=True)
class Starting:
    """Workers 0, 1, 2, ... are starting in their slots; `hindrance` tells why some cannot start
    yet."""

    since_s: float
    allocation: Allocation
    started: frozenset[int] = frozenset()
    exits: Mapping[int, int] = field(default_factory=dict[int, int])
    hindrance: str = ""
    state = JobState.STARTING


@dataclass(frozen=True, slots=True)
class Running:
    """All workers are running; worker `numbers[i]` is in slot i. While the membership changes,
    `joining` and `joining_numbers` describe the next generation. A worker that died is in neither,
    if the job continues without it."""

    since_s: float
    allocation: Allocation
    numbers: tuple[int, ...]
    joining: Allocation = ()
    joining_numbers: tuple[int, ...] = ()
    exits: Mapping[int, int] = field(default_factory=dict[int, int])
    state = JobState.RUNNING


@dataclass(frozen=True, slots=True)
class Stopping:
    """The job stops. Until `insists_at_s` the program is only asked to stop; None means that its
    workers are being stopped."""

    since_s: float
    allocation: Allocation
    numbers: tuple[int, ...]
    purpose: Purpose
    reason: str = ""
    exits: Mapping[int, int] = field(default_factory=dict[int, int])
    insists_at_s: float | None = None
    state = JobState.STOPPING


@dataclass(frozen=True, slots=True)
class Ended:
    """The job is over."""

    at_s: float
    state: JobState
    reason: str = ""


Phase = Held | Queued | Starting | Running | Stopping | Ended
ActivePhase = Starting | Running | Stopping


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """How long a job has run and waited, up to `as_of_s`.

    The `last_` fields describe the newest run and the newest wait. A run lasts from a start out of
    the queue to the stop that returns the job to the queue; a resize does not end a run. Tiresias
    needs these fields.
    """

    as_of_s: float
    running_s: float = 0.0
    waiting_s: float = 0.0
    gpu_s: float = 0.0
    last_running_s: float = 0.0
    last_waiting_s: float = 0.0
    last_gpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SizeCap:
    """The job may not grow beyond `workers` until `until_s`, because growth was slower or
    failed."""

    workers: int
    until_s: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """Nodes that rejected the job. The scheduler does not use them for the job until `until_s`."""

    nodes: tuple[NodeId, ...]
    until_s: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A job and everything that the scheduler knows about it."""

    id: JobId
    spec: JobSpec
    submitted_s: float
    phase: Phase
    service: ServiceTime
    attempt: int = 0
    generation: int = 0
    workers_numbered: int = 0  # how many workers this attempt has had so far
    failures: int = 0
    idle_attempts: int = 0
    losses: int = 0
    """How often in a row the workers were lost; a run that made progress resets the count."""
    first_started_s: float = math.inf
    queue: int = 0
    speed: SpeedModel = PRIOR
    epochs_done: float = 0.0
    epochs_done_at_start: float = 0.0
    reported_in: int = 0  # the attempt of the newest progress report
    epochs_saved: float = 0.0  # in a checkpoint; the next attempt starts here
    saved_at_s: float = 0.0  # time of the newest save, or of the start
    epochs_total: float | None = None  # from the program; infinite: unknown
    hears: bool = False  # the program of this attempt stops by itself when asked
    lost_s: float = 0.0  # time spent on lost work, in all attempts
    progress_at_s: float = 0.0
    start_s: float | None = None  # duration of the newest start
    stop_s: float = 0.0
    save_s: float | None = None  # durations of the newest save and load, if reported
    load_s: float | None = None
    memory_bytes_seen: int = 0
    resize_s: float | None = None  # pause of the newest resize in place
    deaths: int = 0  # worker deaths in a row without progress
    died_at_s: float = -math.inf  # time of the newest counted worker death
    pinned_workers: int | None = None  # the size set by the owner; overrides the policy
    cap: SizeCap | None = None
    refusal: NodeRefusal | None = None

    @property
    def state(self) -> JobState:
        return self.phase.state

    @property
    def allocation(self) -> Allocation:
        """The slots that the job's workers hold; during a membership change, those of the current
        generation."""
        phase = self.phase
        return phase.allocation if isinstance(phase, ActivePhase) else ()

    @property
    def units(self) -> int:
        """The size of `allocation`, in units."""
        return self.spec.units_in(self.allocation)

    @property
    def is_active(self) -> bool:
        return isinstance(self.phase, ActivePhase)

    @property
    def members(self) -> Allocation:
        """All slots that the job holds; during a membership change, those of both generations."""
        phase = self.phase
        if not isinstance(phase, Running) or not phase.joining:
            return self.allocation
        coming = zip(phase.joining_numbers, phase.joining, strict=True)
        return phase.allocation + tuple(slot for n, slot in coming if n not in phase.numbers)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the workers in `members`, in the same order."""
        match self.phase:
            case Running(numbers=held, joining_numbers=joining):
                return held + tuple(n for n in joining if n not in held)
            case Stopping(numbers=held):
                return held
            case _:
                return tuple(range(len(self.allocation)))

    def units_of(self, numbers: Collection[int]) -> int:
        """The size of these workers together, in units."""
        workers = zip(self.numbers, self.members, strict=True)
        return self.spec.units_in(tuple(slot for number, slot in workers if number in numbers))

    @property
    def newcomers(self) -> frozenset[int]:
        """The workers that join with the next generation."""
        match self.phase:
            case Running(numbers=held, joining_numbers=joining):
                return frozenset(joining).difference(held)
            case _:
                return frozenset()

    @property
    def epochs(self) -> float:
        """The number of epochs of the job: the program's number, else the user's. Infinite if the
        program does not know its number of epochs."""
        return self.spec.epochs if self.epochs_total is None else self.epochs_total
