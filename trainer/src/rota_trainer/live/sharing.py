"""Which samples come next, and who takes which: pure arithmetic.

The order of an epoch's samples depends on the seed and the epoch alone. A step takes the next ones
in that order, however many workers there are, so that each is used once whoever comes or goes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

SCALINGS = ("constant", "linear", "sqrt")
LEAST = 2
"""No worker gets fewer samples than this unless the batch is smaller: layers that normalise over a
batch cannot work with one."""


class Share(NamedTuple):
    """One worker's part of a step: samples by number, and what its gradients count for."""

    samples: list[int]
    weight: float
    n_together: int
    """Samples of all workers in this step."""


def order(length: int, *, seed: int, epoch: int) -> torch.Tensor:
    """All samples of an epoch, by number."""
    chance = torch.Generator().manual_seed(_mixed(seed, epoch))
    return torch.randperm(length, generator=chance)


def bounds(n_samples: int, *, rank: int, size: int) -> tuple[int, int]:
    """Where one worker's part of a batch begins and ends: parts differ by one at most, and who
    would get too few gets nothing."""
    n_active = max(1, min(size, n_samples // LEAST))
    if rank >= n_active:
        return n_samples, n_samples
    least, rest = divmod(n_samples, n_active)
    begin = rank * least + min(rank, rest)
    return begin, begin + least + (rank < rest)


def share(ordered: torch.Tensor, used: int, *, batch: int, rank: int, size: int) -> Share:
    """The part of the step that begins after `used` samples. A worker with nothing to do computes
    on some sample all the same, because the others wait for its gradients; they count for 0."""
    together = ordered[used : used + batch]
    n_together = len(together)
    begin, end = bounds(n_together, rank=rank, size=size)
    own = together[begin:end] if end > begin else ordered[:LEAST]
    samples: list[int] = own.tolist()  # type: ignore[reportUnknownMemberType]
    return Share(samples, (end - begin) / n_together, n_together)


def batch_together(batch_size: int, *, size: int, scaling: str) -> int:
    """Samples in a step of all workers."""
    return batch_size if scaling == "constant" else batch_size * size


def rate_factor(size: int, scaling: str) -> float:
    """What the learning rate of one worker is multiplied by for so many."""
    return {"constant": 1.0, "linear": float(size), "sqrt": math.sqrt(size)}[scaling]


def _mixed(seed: int, epoch: int) -> int:
    """Another number for each pair, so that seed 1's second epoch is not seed 2's first."""
    return (seed * 0x9E3779B97F4A7C15 + epoch * 0xC2B2AE3D27D4EB4F) % (1 << 63)
