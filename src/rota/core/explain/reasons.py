"""Every sentence that answers "why", as typed values, so that wording is reviewed once."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.model import JobId, NodeId

MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class WaitsForItsTurn:
    """The usual answer: others come first."""

    wanted: str
    n_ahead: int
    n_running: int

    def __str__(self) -> str:
        return f"waits for {self.wanted}: {self.n_running} running, {self.n_ahead} ahead of it"


@dataclass(frozen=True, slots=True)
class WaitsForARound:
    """It came, or may run, only since the last decision."""

    def __str__(self) -> str:
        return "waits for the next decision"


@dataclass(frozen=True, slots=True)
class Fragmented:
    """Enough is free, but not where this job could use it."""

    workers: int
    fits: int

    def __str__(self) -> str:
        return (
            f"fragmented: {self.workers} workers fit nowhere as things stand"
            f" ({self.fits} would); starts when a node has room"
        )


@dataclass(frozen=True, slots=True)
class Protected:
    """Somebody who would have to give way has only just started."""

    victim: JobId
    until_s: float

    def __str__(self) -> str:
        return f"waits until {self.victim} has run long enough to be stopped"


@dataclass(frozen=True, slots=True)
class Impossible:
    """The nodes do not have what the job insists on."""

    wanted: str

    def __str__(self) -> str:
        return f"could not run here even if all else were gone: it needs {self.wanted}"


@dataclass(frozen=True, slots=True)
class Drained:
    """Nothing that takes work could run it, and something that could may be closed."""

    def __str__(self) -> str:
        return "waits until a drained or cordoned node takes work again"


@dataclass(frozen=True, slots=True)
class Occupied:
    """It could run if others let go of what they hold, or a node were well again."""

    def __str__(self) -> str:
        return "waits for what others hold, or for a node that is not well"


@dataclass(frozen=True, slots=True)
class SentToASickNode:
    """Whether it has begun there, nobody knows: it cannot be begun elsewhere."""

    node: str
    note: str

    def __str__(self) -> str:
        return f"waits for node {self.node}, which {self.note}"


@dataclass(frozen=True, slots=True)
class Refused:
    """Where there is room, it was sent in vain."""

    nodes: tuple[NodeId, ...]
    why: str

    def __str__(self) -> str:
        n_more = len(self.nodes) - MOST_NAMED
        more = f" and {plural(n_more, 'other')}" if n_more > 0 else ""
        named = ", ".join(self.nodes[:MOST_NAMED]) + more
        return f"waits for another node, or a later try: {named} would not have it: {self.why}"


@dataclass(frozen=True, slots=True)
class BacksOff:
    until_s: float
    why: str = ""

    def __str__(self) -> str:
        why = f": {self.why}" if self.why else ""
        return f"waits before it is tried again{why}"


@dataclass(frozen=True, slots=True)
class WaitsForJobs:
    jobs: tuple[JobId, ...]

    def __str__(self) -> str:
        return f"waits for {', '.join(self.jobs)} to succeed"


@dataclass(frozen=True, slots=True)
class Pinned:
    """Its owner chose the size."""

    workers: int

    def __str__(self) -> str:
        return f"{plural(self.workers, 'worker')} as its owner wants"


@dataclass(frozen=True, slots=True)
class DoesNotGrow:
    """More workers did not help."""

    workers: int
    why: str

    def __str__(self) -> str:
        return f"{plural(self.workers, 'worker')} for a while: {self.why}"


@dataclass(frozen=True, slots=True)
class OnHold:
    def __str__(self) -> str:
        return "is held until somebody releases it"


def gpu_noun(gpu_types: tuple[str, ...]) -> str:
    return f"{' or '.join(gpu_types)} GPU".lstrip()


def plural(count: float, noun: str) -> str:
    return f"{count:g} {noun}{'' if count == 1 else 's'}"


Reason = (
    OnHold
    | WaitsForItsTurn
    | WaitsForARound
    | Fragmented
    | Protected
    | Impossible
    | Drained
    | Occupied
    | SentToASickNode
    | Refused
    | BacksOff
    | WaitsForJobs
    | Pinned
    | DoesNotGrow
)
