"""How far a run is, and whose it is."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """So many whole epochs, and so many steps of the next one."""

    epoch: int = 0
    step: int = 0
    progress: float = 0.0
    """The same in epochs, as far as the length of an epoch is known."""

    @property
    def steps_total(self) -> int | None:
        """Of the epoch that it is in; None where nobody knew."""
        part = self.progress - self.epoch
        return round(self.step / part) if part > 0 else None


class Owner(NamedTuple):
    """Who can go on from a checkpoint: the same job with the same code."""

    job: str = ""
    code: str = ""
