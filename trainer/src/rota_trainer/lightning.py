"""For scripts that use Lightning: one callback that reports, saves and stops.

rota = RotaCallback()
trainer = Trainer(max_epochs=90, callbacks=[rota])
trainer.fit(model, loader, ckpt_path=rota.newest())
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader

from rota_trainer.run import Run
from rota_trainer.starting import start
from rota_trainer.torch import randomness
from rota_trainer.values import n_samples


class RotaCallback(Checkpoint):
    """Being a kind of `Checkpoint`, it comes after all other callbacks, whose states it saves.

    Each end of an epoch is a safe point. With `every_step` each step is one, too; that needs a
    loader that can go on in the middle, such as `Loader`.
    """

    def __init__(self, run: Run | None = None, *, every_step: bool = False) -> None:
        self.run = start() if run is None else run
        self._every_step = every_step
        self._epochs: Iterator[int] | None = None

    def newest(self) -> str | None:
        """For `ckpt_path` of `Trainer.fit`: the checkpoint to go on from, None to begin."""
        found: list[Path] = []
        self.run.restore(found.append)
        return str(found[0]) if found else None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if trainer.world_size > 1 and not isinstance(trainer.strategy, DDPStrategy):
            raise ValueError(
                f"RotaCallback cannot save what {type(trainer.strategy).__name__} spreads over"
                " several workers; use strategy='ddp'"
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._every_step and not _can_go_on(trainer.train_dataloader):
            raise ValueError(
                "every_step=True needs a loader that can go on in the middle of an epoch; make it"
                " with rota_trainer.lightning.Loader instead of DataLoader"
            )
        self.run.agree = lambda flag: trainer.strategy.reduce_boolean_decision(flag, all=False)
        self._trainer = trainer
        self._epochs = self.run.epochs(_n_epochs(trainer), save=self._save)
        next(self._epochs, None)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        # The end of the epoch is right behind its last batch, and is a safe point itself.
        is_safe = self._every_step and not trainer.is_last_batch
        self.run.step(n_samples(batch), save=self._save if is_safe else None)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.run.report(**trainer.callback_metrics)
        if self._epochs is not None:
            next(self._epochs, None)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._epochs = None

    def state_dict(self) -> dict[str, Any]:
        return {"random": randomness.take()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        states, rank = state_dict["random"], self.run.place.rank
        randomness.put_back(randomness.made_for(rank, states) if rank else states)

    def _save(self, path: Path) -> None:
        with _without_barrier(self._trainer.strategy):
            self._trainer.save_checkpoint(path, weights_only=False)


class Loader(DataLoader[Any]):
    """A DataLoader that goes on in the middle of an epoch, with the same samples in the same
    order. Lightning saves and restores it with its own checkpoints."""

    _n_given = 0
    _at_start: dict[str, Any] | None = None
    _resume: dict[str, Any] | None = None

    def __iter__(self) -> Any:
        resume, self._resume = self._resume, None
        self._n_given = 0
        if resume is not None:
            randomness.put_back(resume["at_start"])
        self._at_start = randomness.take()
        batches = super().__iter__()
        if resume is not None:
            for _ in range(resume["n_given"]):
                next(batches)
            self._n_given = resume["n_given"]
            randomness.put_back(resume["now"])
        return self._counted(batches)

    def _counted(self, batches: Any) -> Iterator[Any]:
        for batch in batches:
            self._n_given += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        return {
            "n_given": self._n_given,
            "at_start": self._at_start,
            "now": randomness.take(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """After the last batch there is nothing to go on with: the next epoch begins."""
        if 0 < state_dict["n_given"] < len(self):
            self._resume = state_dict


def _can_go_on(loaders: Any) -> bool:
    return hasattr(loaders, "state_dict") and hasattr(loaders, "load_state_dict")


def _n_epochs(trainer: Trainer) -> int | None:
    """None if Lightning itself does not know."""
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        return trainer.max_epochs
    batches = trainer.num_training_batches
    if trainer.max_steps > 0 and isinstance(batches, int):
        return -(-trainer.max_steps * trainer.accumulate_grad_batches // batches)
    return None


@contextlib.contextmanager
def _without_barrier(strategy: Any) -> Generator[None]:
    """Lightning waits for all workers after a save. Only worker 0 saves here, and if it cannot,
    the others must not wait for it."""
    strategy.barrier = _do_nothing
    try:
        yield
    finally:
        del strategy.barrier


def _do_nothing(*_args: Any, **_named: Any) -> None:
    pass
