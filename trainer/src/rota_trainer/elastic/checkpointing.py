"""Checkpoints of a live training: periodically in the background, and before a stop."""

from __future__ import annotations

import pickle
import threading
import time
from pathlib import Path
from typing import Any, cast

import torch

from rota_trainer.console import print_message
from rota_trainer.elastic.state import TrainingState, on_cpu
from rota_trainer.progress.position import Position
from rota_trainer.run import Run
from rota_trainer.torch import rng
from rota_trainer.torch.components import OtherStateError
from rota_trainer.torch.safe_load import allow_classes, error_summary

FORMAT = 1
SAVE_EVERY_S = 600.0


class ElasticCheckpointer:
    def __init__(self, run: Run, state: TrainingState, *, every_s: float, n_samples: int) -> None:
        self._run = run
        self._state = state
        self._every_s = every_s
        self._n_samples = n_samples
        self._saved_s = time.monotonic()
        self._writer: threading.Thread | None = None

    def save_if_due(self) -> None:
        """Save in a background thread if the interval has passed. Training waits only while the
        state is copied."""
        if time.monotonic() - self._saved_s < self._every_s or self._is_writing():
            return
        self._saved_s = time.monotonic()
        copied, position = on_cpu(self._contents()), self._run.tally.position()
        self._writer = threading.Thread(target=self._write, args=(copied, position))
        self._writer.start()

    def save(self) -> bool:
        """Save now; returns whether the checkpoint is on disk."""
        if self._writer is not None:
            self._writer.join()
        self._saved_s = time.monotonic()
        return self._write(self._contents(), self._run.tally.position())

    def restore(self) -> bool:
        """Load the newest checkpoint of this job and code; returns False if there is none. Raises
        OtherStateError if it does not fit."""
        return self._run.restore(self._load)

    def _contents(self) -> dict[str, Any]:
        about = {"live": FORMAT, "n_samples": self._n_samples}
        return {**about, **self._state.state_dict(), "random": rng.capture_states()}

    def _write(self, contents: dict[str, Any], position: Position) -> bool:
        began_s = time.perf_counter()
        saved = self._run.checkpointer.save(lambda path: torch.save(contents, path), position)
        if saved:
            self._run.tally.save_s = time.perf_counter() - began_s
            self._run.tally.epochs_saved = position.progress
        return saved

    def _load(self, path: Path) -> None:
        try:
            with allow_classes(self._state.classes()):
                saved: Any = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise OtherStateError(
                f"{path} cannot be read by torch {torch.__version__}: {error_summary(error)}"
            ) from error
        if not _is_ours(saved):
            raise OtherStateError(
                f"{path} was not saved by a live training; use a new checkpoint folder"
            )
        _check_samples(saved, n_here=self._n_samples)
        self._state.load(saved)
        rng.restore_states(saved["random"])

    def _is_writing(self) -> bool:
        return self._writer is not None and self._writer.is_alive()


def _check_samples(saved: dict[str, Any], *, n_here: int) -> None:
    """Refuse a checkpoint from within an epoch of a dataset with another length: which samples are
    left cannot be computed."""
    n_saved = saved.get("n_samples", n_here)
    if n_saved == n_here:
        return
    if saved["progress"]["used"]:
        raise OtherStateError(
            f"the checkpoint was saved within an epoch of {n_saved} samples, but the dataset has"
            f" {n_here} now. Use the same dataset, or a new checkpoint folder"
        )
    print_message(f"the dataset has {n_here} samples now; it had {n_saved} in earlier epochs")


def _is_ours(saved: Any) -> bool:
    return isinstance(saved, dict) and cast("dict[str, Any]", saved).get("live") == FORMAT
