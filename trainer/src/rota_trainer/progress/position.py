"""How far a run is, and whose it is."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """So many whole epochs, and so many steps of the next one."""

    epoch: int = 0
    step: int = 0
    progress: float = 0.0
    """The same in epochs, as far as the length of an epoch is known."""


class Owner(NamedTuple):
    """Who can go on from a checkpoint: the same job with the same code."""

    job: str = ""
    code: str = ""
