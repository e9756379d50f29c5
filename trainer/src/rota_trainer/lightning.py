"""Lightning integration: one callback that reports progress, saves and stops.

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

from rota_trainer.progress.numbers import n_samples
from rota_trainer.run import Run, start
from rota_trainer.torch import rng


class RotaCallback(Checkpoint):
    """A `Checkpoint` callback, so that Lightning calls it after all others: it saves their states.

    Each end of an epoch is a safe point. With `every_step` each step is a safe point too; this
    needs a loader that can resume in the middle of an epoch, such as `Loader`.

    Lightning stores a callback's state under the class name, so the class cannot be renamed.
    """

    def __init__(self, run: Run | None = None, *, every_step: bool = False) -> None:
        self.run = start() if run is None else run
        self._every_step = every_step
        self._epochs: Iterator[int] | None = None

    def newest(self) -> str | None:
        """The checkpoint to resume from, for `ckpt_path` of `Trainer.fit`; None if none exists."""
        found: list[Path] = []
        self.run.restore(found.append)
        return str(found[0]) if found else None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if trainer.world_size > 1 and not isinstance(trainer.strategy, DDPStrategy):
            raise ValueError(
                f"RotaCallback cannot save the model of {type(trainer.strategy).__name__}, which"
                " divides it between workers; use strategy='ddp'"
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._every_step and not _can_resume(trainer.train_dataloader):
            raise ValueError(
                "every_step=True needs a loader that can resume in the middle of an epoch; use"
                " rota_trainer.lightning.Loader instead of DataLoader"
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
        # The last batch is no safe point: the end of the epoch follows, which is one.
        is_safe = self._every_step and not trainer.is_last_batch
        self.run.step(n_samples(batch), save=self._save if is_safe else None)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.run.report(**trainer.callback_metrics)
        if self._epochs is not None:
            next(self._epochs, None)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._epochs = None

    def state_dict(self) -> dict[str, Any]:
        return {"random": rng.capture_states()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        states, rank = state_dict["random"], self.run.environment.rank
        rng.restore_states(rng.derive_states(rank, states) if rank else states)

    def _save(self, path: Path) -> None:
        with _without_barrier(self._trainer.strategy):
            self._trainer.save_checkpoint(path, weights_only=False)


class Loader(DataLoader[Any]):
    """A DataLoader that can resume in the middle of an epoch, with the same samples in the same
    order. Lightning saves and restores its state as part of Lightning's checkpoints."""

    _n_given = 0
    _at_start: dict[str, Any] | None = None
    _resume: dict[str, Any] | None = None

    def __iter__(self) -> Any:
        resume, self._resume = self._resume, None
        self._n_given = 0
        if resume is not None:
            rng.restore_states(resume["at_start"])
        self._at_start = rng.capture_states()
        batches = super().__iter__()
        if resume is not None:
            for _ in range(resume["n_given"]):
                next(batches)
            self._n_given = resume["n_given"]
            rng.restore_states(resume["now"])
        return self._counted(batches)

    def _counted(self, batches: Any) -> Iterator[Any]:
        for batch in batches:
            self._n_given += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        return {
            "n_given": self._n_given,
            "at_start": self._at_start,
            "now": rng.capture_states(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """A state after the last batch has nothing left to resume: the next epoch begins."""
        if 0 < state_dict["n_given"] < len(self):
            self._resume = state_dict


def _can_resume(loaders: Any) -> bool:
    return hasattr(loaders, "state_dict") and hasattr(loaders, "load_state_dict")


def _n_epochs(trainer: Trainer) -> int | None:
    """The number of epochs of the run; None if Lightning does not know it."""
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        return trainer.max_epochs
    batches = trainer.num_training_batches
    if trainer.max_steps > 0 and isinstance(batches, int):
        return -(-trainer.max_steps * trainer.accumulate_grad_batches // batches)
    return None


@contextlib.contextmanager
def _without_barrier(strategy: Any) -> Generator[None]:
    """Disable Lightning's barrier after a save. Only worker 0 saves here; if the save fails, the
    other workers must not wait for it."""
    strategy.barrier = _do_nothing
    try:
        yield
    finally:
        del strategy.barrier


def _do_nothing(*_args: Any, **_named: Any) -> None:
    pass
