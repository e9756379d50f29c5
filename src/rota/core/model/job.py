"""The nouns of the scheduler as frozen values: nodes, jobs, allocations.

Everybody reads these; only the kernel makes new ones out of old ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

from rota.core.cards import Gpu, Whole
from rota.core.speed import PRIOR, SpeedModel
from rota.core.states import Purpose, State
from rota.core.taints import USUAL, Taints
from rota.core.wishes import Estimate, Mode, Share

JobId = NewType("JobId", str)
NodeId = NewType("NodeId", str)

Labels = frozenset[tuple[str, str]]
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Node:
    """A machine: its GPUs, and what else its workers use up. An administrator may drain it: what
    runs there moves off. The cluster that it belongs to may cordon it: what runs there goes on.
    Nothing new goes to either."""

    id: NodeId
    gpus: tuple[Gpu, ...] = ()
    cpus: float = math.inf
    memory_bytes: float = math.inf
    max_workers: float = math.inf
    labels: Labels = frozenset()
    is_draining: bool = False
    is_cordoned: bool = False
    note: str = ""
    """What is the matter with it, if something is."""
    whole: Whole | None = None
    """Where that is more than there is now: a job that needs it waits."""
    taints: Taints = ()
    """Only who tolerates all of them is let in."""

    @property
    def is_closed(self) -> bool:
        """To newcomers."""
        return self.is_draining or self.is_cordoned


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a user wants run, as far as scheduling cares. Amounts are for one worker."""

    name: str
    user: str = ""
    project: str = ""
    priority: int = 0
    mode: Mode = Mode.RESTART
    min_workers: int = 1
    max_workers: int = 1
    requested_workers: int = 1
    gpus: int = 1
    share: Share | None = None
    gpu_types: tuple[str, ...] = ()
    node_labels: Labels = frozenset()
    tolerations: frozenset[str] = USUAL
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

    @property
    def uses_gpus(self) -> bool:
        return self.gpus > 0 or self.share is not None


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one worker runs: a node and the indices of its GPUs there. A share takes
    `share_bytes` of its only GPU, which are `fraction` of the card."""

    node: NodeId
    gpus: tuple[int, ...] = ()
    share_bytes: int = 0
    fraction: float = 1.0


Allocation = tuple[Slot, ...]
"""The slots of a job's workers, in the order of their ranks."""


@dataclass(frozen=True, slots=True)
class Held:
    since_s: float
    state = State.HELD


@dataclass(frozen=True, slots=True)
class Queued:
    """Waits. `not_before_s` is the end of a back-off, and `reason` why there is one; a job that
    `is_resizing` has stopped only to start again at another size, so that its run goes on."""

    since_s: float
    not_before_s: float = 0.0
    is_resizing: bool = False
    reason: str = ""
    state = State.QUEUED


@dataclass(frozen=True, slots=True)
class Starting:
    """Workers 0, 1, 2, ... are on their way into their slots; `hindrance` keeps some from it."""

    since_s: float
    allocation: Allocation
    started: frozenset[int] = frozenset()
    exits: Mapping[int, int] = field(default_factory=dict[int, int])
    hindrance: str = ""
    state = State.STARTING


@dataclass(frozen=True, slots=True)
class Running:
    """All workers are up, number `numbers[i]` (given once in an attempt) in slot i. While the
    membership changes, `joining` comes next. A worker that died and was outlived is in neither."""

    since_s: float
    allocation: Allocation
    numbers: tuple[int, ...]
    joining: Allocation = ()
    joining_numbers: tuple[int, ...] = ()
    exits: Mapping[int, int] = field(default_factory=dict[int, int])
    state = State.RUNNING


@dataclass(frozen=True, slots=True)
class Stopping:
    """Until `insists_at_s` the program is only asked to stop; None once it was told to."""

    since_s: float
    allocation: Allocation
    numbers: tuple[int, ...]
    purpose: Purpose
    reason: str = ""
    exits: Mapping[int, int] = field(default_factory=dict[int, int])
    insists_at_s: float | None = None
    state = State.STOPPING


@dataclass(frozen=True, slots=True)
class Ended:
    at_s: float
    state: State
    reason: str = ""


Phase = Held | Queued | Starting | Running | Stopping | Ended
HoldsGpus = Starting | Running | Stopping


@dataclass(frozen=True, slots=True)
class Service:
    """How long a job has run and waited, up to `as_of_s`.

    The `last_` fields belong to the newest run (from a start out of the queue to the halt back
    into it; a resize does not end a run) and to the newest wait; Tiresias lives on them.
    """

    as_of_s: float
    running_s: float = 0.0
    waiting_s: float = 0.0
    gpu_s: float = 0.0
    last_running_s: float = 0.0
    last_waiting_s: float = 0.0
    last_gpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Cap:
    """A job does not grow beyond so many workers until then: it did not pay, or did not work."""

    workers: int
    until_s: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nodes that would not have a job, which is sent to none of them until then."""

    nodes: tuple[NodeId, ...]
    until_s: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A job and everything that the scheduler knows of it."""

    id: JobId
    spec: JobSpec
    submitted_s: float
    phase: Phase
    service: Service
    attempt: int = 0
    generation: int = 0
    workers_numbered: int = 0  # how many workers this attempt has had
    failures: int = 0
    idle_attempts: int = 0
    losses: int = 0
    """How often in a row its workers were lost; a run that came to something ends the row."""
    first_started_s: float = math.inf
    queue: int = 0
    speed: SpeedModel = PRIOR
    epochs_done: float = 0.0
    epochs_done_at_start: float = 0.0
    reported_in: int = 0  # the attempt of the newest report
    epochs_saved: float = 0.0  # what a checkpoint holds: where the next attempt begins
    saved_at_s: float = 0.0  # when that was told, or work began anew
    epochs_total: float | None = None  # what the program says it will do; infinite: it counts only
    hears: bool = False  # whether the program of this attempt stops when it is asked to
    lost_s: float = 0.0  # how long the work took that was done in vain, over all attempts
    progress_at_s: float = 0.0
    start_s: float | None = None  # how long the newest start took, up to the first step if told
    stop_s: float = 0.0
    save_s: float | None = None  # how long the newest save and load took, where the program tells
    load_s: float | None = None
    memory_bytes_seen: int = 0
    resize_s: float | None = None  # how long it stood still for the newest change in place
    deaths: int = 0  # how often in a row workers died and were outlived, without progress
    died_at_s: float = -math.inf  # when the newest of these began
    pinned_workers: int | None = None  # the size that its owner wants, whatever the policy says
    cap: Cap | None = None
    refusal: Refusal | None = None

    @property
    def state(self) -> State:
        return self.phase.state

    @property
    def allocation(self) -> Allocation:
        """The slots that the job's workers hold; while it changes its members, the old ones."""
        phase = self.phase
        return phase.allocation if isinstance(phase, HoldsGpus) else ()

    @property
    def is_active(self) -> bool:
        return isinstance(self.phase, HoldsGpus)

    @property
    def members(self) -> Allocation:
        """Every slot that the job holds: while it changes its members, the next ones, too."""
        phase = self.phase
        if not isinstance(phase, Running) or not phase.joining:
            return self.allocation
        coming = zip(phase.joining_numbers, phase.joining, strict=True)
        return phase.allocation + tuple(slot for n, slot in coming if n not in phase.numbers)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the workers in `members`."""
        match self.phase:
            case Running(numbers=held, joining_numbers=joining):
                return held + tuple(n for n in joining if n not in held)
            case Stopping(numbers=held):
                return held
            case _:
                return tuple(range(len(self.allocation)))

    @property
    def epochs(self) -> float:
        """How many epochs the job takes: what its program says, else what the user said. Infinite
        where the program goes further than anybody said."""
        return self.spec.epochs if self.epochs_total is None else self.epochs_total


def n_gpus(allocation: Allocation) -> float:
    """How many GPUs an allocation holds; shares count as their fraction of a card."""
    return sum(len(slot.gpus) * slot.fraction for slot in allocation)


def newcomers(before: Allocation, after: Allocation) -> Allocation:
    """The slots of workers that are new or sit elsewhere in `after`. With the arguments swapped:
    those who leave."""
    return tuple(slot for i, slot in enumerate(after) if i >= len(before) or before[i] != slot)


def n_nodes(allocation: Allocation) -> int:
    return len({slot.node for slot in allocation})
