"""Divides the samples of an epoch between the workers of a live training, and loads them.

The order of samples depends on the seed and the epoch only, never on the number of workers, so that
after a resize the remaining samples can be divided again and each sample is used exactly once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from rota_trainer.elastic.state import TrainingProgress

SCALINGS = ("constant", "linear", "sqrt")
MIN_SAMPLES_PER_WORKER = 2
"""No worker gets fewer samples unless the whole batch is smaller: layers that normalize over the
batch cannot work with one sample."""


class BatchShare(NamedTuple):
    """One worker's part of a step: the indices of its samples, and the weight of its gradients."""

    samples: list[int]
    weight: float
    n_together: int
    """The samples of all workers in this step."""


class ElasticSampler(NamedTuple):
    dataset: Any
    batch_size: int
    scaling: str
    seed: int
    loader: dict[str, Any]
    """Options of DataLoader."""

    @property
    def length(self) -> int:
        return len(self.dataset)

    def check(self) -> None:
        if self.batch_size < 1 or self.length < 1:
            raise ValueError("live training needs at least one sample and batch_size >= 1")
        if self.scaling not in SCALINGS:
            known = ", ".join(SCALINGS)
            raise ValueError(f"batch_scaling={self.scaling!r} is unknown; use one of {known}")

    def load(
        self, progress: TrainingProgress, *, rank: int, size: int
    ) -> Iterator[tuple[BatchShare, Any]]:
        """Yield this worker's shares and their batches, from here to the end of the epoch."""
        ordered = epoch_order(self.length, seed=self.seed, epoch=progress.epoch)
        together = batch_together(self.batch_size, size=size, scaling=self.scaling)
        shares = [
            share(ordered, used, batch=together, rank=rank, size=size)
            for used in range(progress.used, self.length, together)
        ]
        loader: Any = DataLoader(
            self.dataset,
            batch_sampler=[each.samples for each in shares],
            # Its own generator, so that making a loader does not draw from the script's one.
            generator=torch.Generator().manual_seed(progress.global_step),
            **self.loader,
        )
        yield from zip(shares, loader)

    def n_steps(self, progress: TrainingProgress, *, size: int) -> int:
        """The number of steps of this epoch, finished ones included."""
        together = batch_together(self.batch_size, size=size, scaling=self.scaling)
        return progress.steps + -(-(self.length - progress.used) // together)


def epoch_order(length: int, *, seed: int, epoch: int) -> torch.Tensor:
    """The indices of all samples, in the order of this epoch."""
    generator = torch.Generator().manual_seed(_mixed_seed(seed, epoch))
    return torch.randperm(length, generator=generator)


def share_bounds(n_samples: int, *, rank: int, size: int) -> tuple[int, int]:
    """The begin and end of one worker's part of a batch. Parts differ by one sample at most. If
    there are too few samples, the last workers get none."""
    n_active = max(1, min(size, n_samples // MIN_SAMPLES_PER_WORKER))
    if rank >= n_active:
        return n_samples, n_samples
    least, rest = divmod(n_samples, n_active)
    begin = rank * least + min(rank, rest)
    return begin, begin + least + (rank < rest)


def share(ordered: torch.Tensor, used: int, *, batch: int, rank: int, size: int) -> BatchShare:
    """One worker's part of the step that begins after `used` samples. A worker without samples
    computes on the first ones with weight 0, because the others wait for its gradients."""
    together = ordered[used : used + batch]
    n_together = len(together)
    begin, end = share_bounds(n_together, rank=rank, size=size)
    own = together[begin:end] if end > begin else ordered[:MIN_SAMPLES_PER_WORKER]
    samples: list[int] = own.tolist()  # type: ignore[reportUnknownMemberType]
    return BatchShare(samples, (end - begin) / n_together, n_together)


def batch_together(batch_size: int, *, size: int, scaling: str) -> int:
    """The number of samples of all workers in one step."""
    return batch_size if scaling == "constant" else batch_size * size


def rate_factor(size: int, scaling: str) -> float:
    """The factor of the learning rate for this number of workers."""
    return {"constant": 1.0, "linear": float(size), "sqrt": math.sqrt(size)}[scaling]


def _mixed_seed(seed: int, epoch: int) -> int:
    """A different seed for each pair, so that epoch 1 of seed 1 is not epoch 0 of seed 2."""
    return (seed * 0x9E3779B97F4A7C15 + epoch * 0xC2B2AE3D27D4EB4F) % (1 << 63)
