"""Checkpoints on disk: each is a folder that is renamed into place when it is complete.

Layout: `FOLDER/000012-epoch-7-step-0/` holds what the script's `save` wrote, and a manifest. The
first number grows with each checkpoint, so that the order does not depend on the clock. A folder
that is being written or removed has a name that begins with a dot, and its writer holds a lock on
it. The next writer removes unlocked ones: their writer has died.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import threading
import time
from pathlib import Path
from typing import Callable, NamedTuple

from rota_trainer.checkpoint.manifest import (
    CheckpointManifest,
    CorruptCheckpointError,
    check,
    read,
    seal,
    sync_folder,
)
from rota_trainer.console import print_message
from rota_trainer.progress.position import CheckpointSource, Position
from rota_trainer.version import VERSION

STATE = "state"
"""The file or folder inside a checkpoint that the script's `save` and `load` get."""
UNFINISHED = ".unfinished-"
UNLOCKED = ".begun-"
STALE_AFTER_S = 86400.0
"""On file systems without locks on folders, an older unfinished folder counts as abandoned."""
_NAME = re.compile(r"(\d{6,18})-epoch-\d+-step-\d+")


class StoredCheckpoint(NamedTuple):
    """A valid checkpoint: the path for `load`, and its position."""

    path: Path
    position: Position


class CheckpointStore:
    def __init__(self, folder: Path, owner: CheckpointSource, *, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one checkpoint must be kept")
        self.folder = folder
        self._owner = owner
        self._keep = keep
        self._damaged: set[str] = set()

    def write(self, save: Callable[[Path], object], position: Position) -> Path:
        """Call `save`, then rename the result into place. Raises what `save` raises, or OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clear_unfinished()
        unfinished = self._hidden(UNFINISHED)
        # Locked under a name that other writers do not remove, then renamed.
        begun = self._hidden(UNLOCKED)
        begun.mkdir()
        lock = _lock(begun)
        begun.rename(unfinished)
        try:
            save(unfinished / STATE)
            seal(unfinished, owner=self._owner, position=position, library=VERSION)
            final = self._put_in_place(unfinished, position)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        finally:
            if lock is not None:
                os.close(lock)
        self._prune()
        return final

    def newest(self) -> StoredCheckpoint | None:
        """The newest valid checkpoint of this job and code. Prints why newer ones are skipped."""
        others = 0
        for folder in self._folders():
            try:
                manifest = read(folder)
                if manifest.owner != self._owner:
                    others += 1
                    if others == 1:
                        print_message(_refusal(folder, theirs=manifest.owner, ours=self._owner))
                    continue
                check(folder, manifest)
            except CorruptCheckpointError as damage:
                self._damaged.add(folder.name)
                print_message(f"checkpoint {folder} is corrupt and is skipped: {damage}")
                continue
            return StoredCheckpoint(folder / STATE, manifest.position)
        return None

    def _folders(self) -> list[Path]:
        """All checkpoints, newest first."""
        try:
            found = [each for each in self.folder.iterdir() if _NAME.fullmatch(each.name)]
        except OSError:
            return []
        return sorted(found, key=lambda folder: (_serial(folder), folder.name), reverse=True)

    def _put_in_place(self, unfinished: Path, position: Position) -> Path:
        while True:
            serial = 1 + max((_serial(folder) for folder in self._folders()), default=0)
            name = f"{serial:06d}-epoch-{position.epoch}-step-{position.step}"
            final = self.folder / name
            try:
                unfinished.rename(final)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                continue  # Another writer took this name; try the next number.
            sync_folder(self.folder)
            return final

    def _hidden(self, kind: str) -> Path:
        return self.folder / f"{kind}{os.getpid()}-{threading.get_ident()}-{time.time_ns()}"

    def _prune(self) -> None:
        """Remove old checkpoints of this owner, except the newest `keep`. Checkpoints of other
        owners stay."""
        kept = 0
        for folder in self._folders():
            manifest = _read_or_none(folder)
            if manifest is not None and manifest.owner != self._owner:
                continue
            if manifest is not None and folder.name not in self._damaged and kept < self._keep:
                kept += 1
                continue
            self._remove(folder)

    def _remove(self, folder: Path) -> None:
        renamed = self._hidden(UNFINISHED)
        try:
            folder.rename(renamed)
        except OSError:
            return
        shutil.rmtree(renamed, ignore_errors=True)

    def _clear_unfinished(self) -> None:
        for left in self.folder.glob(f"{UNFINISHED}*"):
            lock = _lock(left)
            if lock is not None:
                os.close(lock)
            if lock is not None or _age_s(left) > STALE_AFTER_S:
                shutil.rmtree(left, ignore_errors=True)
        for left in self.folder.glob(f"{UNLOCKED}*"):
            if _age_s(left) > STALE_AFTER_S:
                shutil.rmtree(left, ignore_errors=True)


def _refusal(folder: Path, *, theirs: CheckpointSource, ours: CheckpointSource) -> str:
    if theirs.job != ours.job:
        whose = f"belongs to another job ({theirs.job or 'a standalone run'})"
        advice = "To resume from it, load it by its path."
    else:
        whose = "was written by other code: the main script has changed"
        advice = "If it is still compatible, use the same start(code='...') in both versions."
    return f"OTHER: checkpoint {folder} {whose}. It is not loaded and not deleted. {advice}"


def _serial(folder: Path) -> int:
    return int(folder.name.split("-", 1)[0])


def _read_or_none(folder: Path) -> CheckpointManifest | None:
    try:
        return read(folder)
    except CorruptCheckpointError:
        return None


def _lock(folder: Path) -> int | None:
    """Lock a folder; returns the open descriptor, or None if the folder is locked already or the
    file system cannot lock folders."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
