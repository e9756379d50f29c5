"""Every sentence that answers "why", as typed values, so that wording is reviewed once."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.model import JobId


@dataclass(frozen=True, slots=True)
class WaitsForGpus:
    """The usual answer: others come first."""

    needed: float
    gpu_types: tuple[str, ...]
    n_ahead: int
    n_running: int

    def __str__(self) -> str:
        kind = f" {' or '.join(self.gpu_types)}" if self.gpu_types else ""
        gpus = f"{self.needed:g}{kind} GPU{_s(self.needed)}"
        ahead = f"{self.n_ahead} waiting job{_s(self.n_ahead)} ahead of it"
        return f"waits for {gpus}: {self.n_running} running, {ahead}"


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
class NoSuchGpu:
    """No node has what the job insists on."""

    wanted: str

    def __str__(self) -> str:
        return f"no node offers {self.wanted}"


@dataclass(frozen=True, slots=True)
class BacksOff:
    until_s: float

    def __str__(self) -> str:
        return "waits before it is tried again"


@dataclass(frozen=True, slots=True)
class WaitsForJobs:
    jobs: tuple[JobId, ...]

    def __str__(self) -> str:
        return f"waits for {', '.join(self.jobs)} to succeed"


@dataclass(frozen=True, slots=True)
class OnHold:
    def __str__(self) -> str:
        return "is held until somebody releases it"


def _s(count: float) -> str:
    return "" if count == 1 else "s"


Reason = OnHold | WaitsForGpus | Fragmented | Protected | NoSuchGpu | BacksOff | WaitsForJobs
