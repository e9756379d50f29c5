"""Keras 3 integration: one callback that reports progress, saves and stops after an epoch.

    rota = RotaCallback()
    model.fit(x, y, epochs=90, initial_epoch=rota.restore(model), callbacks=[..., rota])

The callback must be the last one of the list, because it saves what the other callbacks changed.
"""

# Keras has no type hints.
# pyright: basic, reportOptionalSubscript=false, reportOptionalMemberAccess=false

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import torch

from rota_trainer.run import Run, start
from rota_trainer.torch import rng

WEIGHTS = "model.weights.h5"
RANDOM = "random.pt"


class RotaCallback(keras.callbacks.Callback):
    def __init__(self, run: Run | None = None) -> None:
        super().__init__()
        self.run = start() if run is None else run
        self._epochs: Iterator[int] | None = None
        self._random: dict[str, Any] | None = None

    def restore(self, model: keras.Model) -> int:
        """Load the newest checkpoint into a built and compiled model.

        Returns how many epochs are done, for the argument `initial_epoch` of `fit`.
        """

        def load(path: Path) -> None:
            model.optimizer.build(model.trainable_variables)
            model.load_weights(path / WEIGHTS)
            self._random = torch.load(path / RANDOM, weights_only=True)

        self.run.restore(load)
        return self.run.epochs_done

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._epochs is None:
            self._epochs = self.run.epochs(self.params["epochs"], done=epoch, save=self._save)
            next(self._epochs, None)
        if self._random is not None:
            rng.restore_states(self._random)
            self._random = None

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self.run.step()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.run.report(**(logs or {}))
        if self._epochs is not None:
            next(self._epochs, None)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._epochs = None

    def _save(self, path: Path) -> None:
        path.mkdir()
        self.model.save_weights(path / WEIGHTS)
        torch.save(rng.capture_states(), path / RANDOM)
