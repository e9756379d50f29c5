"""GPUs, and what a machine has besides them."""

from __future__ import annotations

import math
from dataclasses import dataclass

USUAL_BYTES = 16 * 1024**3


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    type: str
    memory_bytes: int = USUAL_BYTES


@dataclass(frozen=True, slots=True)
class Whole:
    """What a node has once nobody but us uses it, and it answers."""

    gpus: tuple[Gpu, ...] = ()
    cpus: float = math.inf
    memory_bytes: float = math.inf
    max_workers: float = math.inf
