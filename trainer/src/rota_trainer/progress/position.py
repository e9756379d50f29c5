"""The position of a run, and the owner of its checkpoints. Both are stored in checkpoints."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """The number of finished epochs, and of finished steps of the next epoch."""

    epoch: int = 0
    step: int = 0
    progress: float = 0.0
    """The same position in epochs, with a fraction if the length of an epoch is known."""


class CheckpointSource(NamedTuple):
    """A checkpoint can be loaded only by the same job with the same code."""

    job: str = ""
    code: str = ""
