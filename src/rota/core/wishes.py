"""What a submitter may say about a job: how it takes a change, how much of a card, how long."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """How a job takes a change of its workers (design: inside a training job)."""

    FIXED = "fixed"
    RESTART = "restart"
    TORCHRUN = "torchrun"
    LIVE = "live"

    @property
    def resizes_in_place(self) -> bool:
        return self in (Mode.TORCHRUN, Mode.LIVE)


@dataclass(frozen=True, slots=True)
class Share:
    """A part of one GPU's memory, declared as a fraction of the card or in bytes."""

    fraction: float = 0.0
    memory_bytes: int = 0

    def bytes_on(self, card_bytes: int) -> int:
        """Rounded down, so that ten tenths of a card fit on it."""
        return self.memory_bytes or max(1, int(self.fraction * card_bytes))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the submitter says about a job's length: seconds on `workers` workers, and perhaps
    how it speeds up (`speedups[n]` on n workers, `speedups[0]` = 0)."""

    seconds: float
    workers: int = 1
    speedups: tuple[float, ...] = ()
