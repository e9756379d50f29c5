"""Checkpoints on disk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Position:
    """So many whole epochs, and so many steps of the next one."""

    epoch: int = 0
    step: int = 0
