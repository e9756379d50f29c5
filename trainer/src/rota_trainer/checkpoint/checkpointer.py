"""Where a run's checkpoints are kept, and by whom. Opens nothing before it is needed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Callable

from rota_trainer.identity import code_identity
from rota_trainer.place import Place
from rota_trainer.position import Owner, Position
from rota_trainer.say import say

if TYPE_CHECKING:
    from pathlib import Path

    from rota_trainer.checkpoints import Checkpoints, Found

ALONE = "rota-checkpoints"
"""Runs outside of rota each have a folder of their own in this one."""
MOST_REASONS = 10


class Keeping:
    def __init__(
        self,
        place: Place,
        *,
        keep: int = 2,
        folder: str | Path | None = None,
        code: str | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one checkpoint has to stay")
        self.writes = not place.rank
        """Whether this worker is the one that writes."""
        self.code = code_identity() if code is None else code
        self._keep = keep
        chosen = folder or place.checkpoint_dir or os.path.join(ALONE, _own_name())
        self._folder = os.path.abspath(chosen)
        self._owner = Owner(place.job, self.code)
        self._opened: Checkpoints | None = None
        self._said: set[str] = set()
        """Why checkpoints could not be saved, as far as it was said."""

    def folder(self) -> Path:
        """The folder, made if it can be."""
        folder = self._checkpoints().folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            say(f"the folder for checkpoints cannot be made: {error}")
        return folder

    def save(self, save: Callable[[Path], object], position: Position) -> bool:
        """Whether a checkpoint is on the disk now. A failure is said, not raised."""
        if not self.writes:
            return False
        try:
            self._checkpoints().write(save, position)
        except Exception as error:  # noqa: BLE001 - whatever it is, training goes on
            self._complain(error)
            return False
        return True

    def _complain(self, error: Exception) -> None:
        """Once for each reason: a full disk fills no log."""
        kind = type(error).__name__
        reason = f"{kind} {error.errno}" if isinstance(error, OSError) else f"{kind}: {error}"
        if reason not in self._said and len(self._said) < MOST_REASONS:
            self._said.add(reason)
            say(f"the checkpoint was not saved: {kind}: {error}; this is said once")

    def newest(self) -> Found | None:
        """What can be loaded: its path and position, None if there is nothing."""
        return self._checkpoints().newest()

    def _checkpoints(self) -> Checkpoints:
        if self._opened is None:
            from pathlib import Path

            from rota_trainer.checkpoints import Checkpoints

            self._opened = Checkpoints(Path(self._folder), self._owner, keep=self._keep)
        return self._opened


def _own_name() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
