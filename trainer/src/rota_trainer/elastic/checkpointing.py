"""Checkpoints of a live training: now and then in the background, and before a stop."""

from __future__ import annotations

import pickle
import threading
import time
from pathlib import Path
from typing import Any, cast

import torch

from rota_trainer.live.parts import Parts, on_cpu
from rota_trainer.position import Position
from rota_trainer.run import Run
from rota_trainer.say import say
from rota_trainer.torch import randomness
from rota_trainer.torch.parts import OtherStateError
from rota_trainer.torch.reading import also_safe, essence

FORMAT = 1
SAVE_EVERY_S = 600.0


class Disk:
    def __init__(self, run: Run, parts: Parts, *, every_s: float, n_samples: int) -> None:
        self._run = run
        self._parts = parts
        self._every_s = every_s
        self._n_samples = n_samples
        self._saved_s = time.monotonic()
        self._writer: threading.Thread | None = None

    def save_if_due(self) -> None:
        """Training waits for the copy, not for the disk."""
        if time.monotonic() - self._saved_s < self._every_s or self._is_writing():
            return
        self._saved_s = time.monotonic()
        copied, position = on_cpu(self._contents()), self._run.tally.position()
        self._writer = threading.Thread(target=self._write, args=(copied, position))
        self._writer.start()

    def save(self) -> bool:
        """Now. True when it is on the disk."""
        if self._writer is not None:
            self._writer.join()
        self._saved_s = time.monotonic()
        return self._write(self._contents(), self._run.tally.position())

    def restore(self) -> bool:
        """The newest checkpoint of this job and code. Raises
        OtherStateError for one that does not fit."""
        return self._run.restore(self._load)

    def _contents(self) -> dict[str, Any]:
        about = {"live": FORMAT, "n_samples": self._n_samples}
        return {**about, **self._parts.state(), "random": randomness.take()}

    def _write(self, contents: dict[str, Any], position: Position) -> bool:
        began_s = time.perf_counter()
        saved = self._run.keeping.save(lambda path: torch.save(contents, path), position)
        if saved:
            self._run.tally.save_s = time.perf_counter() - began_s
            self._run.tally.epochs_saved = position.progress
        return saved

    def _load(self, path: Path) -> None:
        try:
            with also_safe(self._parts.classes()):
                saved: Any = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise OtherStateError(
                f"{path} cannot be read by torch {torch.__version__}: {essence(error)}"
            ) from error
        if not _is_ours(saved):
            raise OtherStateError(
                f"{path} was not saved by a live training; begin in a new checkpoint folder"
            )
        _check_samples(saved, n_here=self._n_samples)
        self._parts.load(saved)
        randomness.put_back(saved["random"])

    def _is_writing(self) -> bool:
        return self._writer is not None and self._writer.is_alive()


def _check_samples(saved: dict[str, Any], *, n_here: int) -> None:
    """Of other samples than those of which some were used, nobody can tell which are left."""
    n_saved = saved.get("n_samples", n_here)
    if n_saved == n_here:
        return
    if saved["progress"]["used"]:
        raise OtherStateError(
            f"this checkpoint is from within an epoch of {n_saved} samples, and the dataset has"
            f" {n_here}. Go on with the dataset as it was, or begin in a new checkpoint folder"
        )
    say(f"the dataset has {n_here} samples; it had {n_saved} in the epochs before")


def _is_ours(saved: Any) -> bool:
    return isinstance(saved, dict) and cast("dict[str, Any]", saved).get("live") == FORMAT
