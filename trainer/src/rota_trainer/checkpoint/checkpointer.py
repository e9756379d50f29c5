"""Saves and finds the checkpoints of a run; never raises into training when a save fails.

Chooses the folder and decides which worker writes (rank 0). The store is opened on first use, so
that starting a run stays fast.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Callable

from rota_trainer.checkpoint.code_hash import main_script_hash
from rota_trainer.console import print_message
from rota_trainer.progress.position import CheckpointSource, Position
from rota_trainer.reporting.environment import WorkerEnvironment

if TYPE_CHECKING:
    from pathlib import Path

    from rota_trainer.checkpoint.store import CheckpointStore, StoredCheckpoint

STANDALONE_FOLDER = "rota-checkpoints"
"""The parent folder for runs outside of rota; each run has its own folder inside."""
MOST_REASONS = 10
"""How many different reasons of failed saves are printed."""


class Checkpointer:
    def __init__(
        self,
        environment: WorkerEnvironment,
        *,
        keep: int = 2,
        folder: str | Path | None = None,
        code: str | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one checkpoint must be kept")
        self.writes = not environment.rank
        """Whether this worker writes checkpoints."""
        self.code = main_script_hash() if code is None else code
        self._keep = keep
        chosen = (
            folder or environment.checkpoint_dir or os.path.join(STANDALONE_FOLDER, _run_name())
        )
        self._folder = os.path.abspath(chosen)
        self._owner = CheckpointSource(environment.job, self.code)
        self._opened: CheckpointStore | None = None
        self._printed_reasons: set[str] = set()
        """The reasons of failed saves that were printed."""

    def folder(self) -> Path:
        """The folder for checkpoints; created if possible."""
        folder = self._store().folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            print_message(f"cannot create the checkpoint folder: {error}")
        return folder

    def save(self, save: Callable[[Path], object], position: Position) -> bool:
        """Write a checkpoint; returns whether it is on disk. A failure is printed, not raised."""
        if not self.writes:
            return False
        try:
            self._store().write(save, position)
        except Exception as error:  # noqa: BLE001 - training continues after any error of a save
            self._print_once(error)
            return False
        return True

    def _print_once(self, error: Exception) -> None:
        """Print each reason once, so that a full disk does not fill the log."""
        kind = type(error).__name__
        reason = f"{kind} {error.errno}" if isinstance(error, OSError) else f"{kind}: {error}"
        if reason not in self._printed_reasons and len(self._printed_reasons) < MOST_REASONS:
            self._printed_reasons.add(reason)
            print_message(f"checkpoint not saved: {kind}: {error} (printed once)")

    def newest(self) -> StoredCheckpoint | None:
        """The newest checkpoint that can be loaded; None if there is none."""
        return self._store().newest()

    def _store(self) -> CheckpointStore:
        if self._opened is None:
            from pathlib import Path

            from rota_trainer.checkpoint.store import CheckpointStore

            self._opened = CheckpointStore(Path(self._folder), self._owner, keep=self._keep)
        return self._opened


def _run_name() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
