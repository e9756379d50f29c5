"""The samples of a live training, and how they are loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from rota_trainer.live.parts import Progress
from rota_trainer.live.sharing import SCALINGS, Share, batch_together, order, share


class Samples(NamedTuple):
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
            raise ValueError("live training needs a sample at least, and batch_size=1 at least")
        if self.scaling not in SCALINGS:
            known = ", ".join(SCALINGS)
            raise ValueError(f"batch_scaling={self.scaling!r}: it is one of {known}")

    def load(self, at: Progress, *, rank: int, size: int) -> Iterator[tuple[Share, Any]]:
        """Shares and their batches from here to the end of the epoch, for so many workers."""
        ordered = order(self.length, seed=self.seed, epoch=at.epoch)
        together = batch_together(self.batch_size, size=size, scaling=self.scaling)
        shares = [
            share(ordered, used, batch=together, rank=rank, size=size)
            for used in range(at.used, self.length, together)
        ]
        loader: Any = DataLoader(
            self.dataset,
            batch_sampler=[each.samples for each in shares],
            # One of its own: the script's random numbers do not depend on how often it is made.
            generator=torch.Generator().manual_seed(at.global_step),
            **self.loader,
        )
        yield from zip(shares, loader)

    def n_steps(self, at: Progress, *, size: int) -> int:
        """Of this epoch, those that are done included."""
        together = batch_together(self.batch_size, size=size, scaling=self.scaling)
        return at.steps + -(-(self.length - at.used) // together)
