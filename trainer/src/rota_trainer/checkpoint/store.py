"""Checkpoints on disk: each is a folder that appears whole, or not at all.

Layout: `FOLDER/000012-epoch-7-step-0/` with whatever the script's `save` wrote and a manifest. The
first number grows with each checkpoint, so that the newest is known whatever the clock says. What
is being written or removed has a name that begins with a dot, and is locked by its writer: what is
left of a writer that died is removed by the next.
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

from rota_trainer.manifest import DamageError, Manifest, check, read, seal, sync_folder
from rota_trainer.position import Owner, Position
from rota_trainer.say import say
from rota_trainer.version import VERSION

STATE = "state"
"""The name that a script's `save` and `load` get, inside a checkpoint's folder."""
UNFINISHED = ".unfinished-"
BEGUN = ".begun-"
FORGOTTEN_AFTER_S = 86400.0
"""On file systems that lock no folders, age tells what its writer left behind."""
_NAME = re.compile(r"(\d{6,18})-epoch-\d+-step-\d+")


class Found(NamedTuple):
    """A checkpoint that can be loaded: what to give to `load`, and where it is."""

    path: Path
    position: Position


class Checkpoints:
    def __init__(self, folder: Path, owner: Owner, *, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one checkpoint has to stay")
        self.folder = folder
        self._owner = owner
        self._keep = keep
        self._damaged: set[str] = set()

    def write(self, save: Callable[[Path], object], position: Position) -> Path:
        """Let `save` write, then put it in place at once. Raises what `save` raises, or OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clear_unfinished()
        unfinished = self._hidden(UNFINISHED)
        # It is locked before it has a name that others may clear away.
        begun = self._hidden(BEGUN)
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

    def newest(self) -> Found | None:
        """The newest checkpoint of this job and code that is sound. Says why others are not it."""
        others = 0
        for folder in self._folders():
            try:
                manifest = read(folder)
                if manifest.owner != self._owner:
                    others += 1
                    if others == 1:
                        say(_refusal(folder, theirs=manifest.owner, ours=self._owner))
                    continue
                check(folder, manifest)
            except DamageError as damage:
                self._damaged.add(folder.name)
                say(f"the checkpoint {folder} is damaged and left out: {damage}")
                continue
            return Found(folder / STATE, manifest.position)
        return None

    def _folders(self) -> list[Path]:
        """All checkpoints, the newest first."""
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
                continue  # Somebody else was faster; theirs counts from now on.
            sync_folder(self.folder)
            return final

    def _hidden(self, kind: str) -> Path:
        return self.folder / f"{kind}{os.getpid()}-{threading.get_ident()}-{time.time_ns()}"

    def _prune(self) -> None:
        """Remove ours that are older than the newest few. What belongs to others stays."""
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
        doomed = self._hidden(UNFINISHED)
        try:
            folder.rename(doomed)
        except OSError:
            return
        shutil.rmtree(doomed, ignore_errors=True)

    def _clear_unfinished(self) -> None:
        for left in self.folder.glob(f"{UNFINISHED}*"):
            lock = _lock(left)
            if lock is not None:
                os.close(lock)
            if lock is not None or _age_s(left) > FORGOTTEN_AFTER_S:
                shutil.rmtree(left, ignore_errors=True)
        for left in self.folder.glob(f"{BEGUN}*"):
            if _age_s(left) > FORGOTTEN_AFTER_S:
                shutil.rmtree(left, ignore_errors=True)


def _refusal(folder: Path, *, theirs: Owner, ours: Owner) -> str:
    if theirs.job != ours.job:
        whose = f"another job ({theirs.job or 'a script run alone'})"
        advice = "To go on from it, load it by its path."
    else:
        whose = "other code: the main script was changed since"
        advice = "If it still fits, name the code: start(code='...') in both versions."
    return f"OTHER: the checkpoint {folder} is of {whose}. It is not used, and stays. {advice}"


def _serial(folder: Path) -> int:
    return int(folder.name.split("-", 1)[0])


def _read_or_none(folder: Path) -> Manifest | None:
    try:
        return read(folder)
    except DamageError:
        return None


def _lock(folder: Path) -> int | None:
    """An open lock on a folder, None if somebody has it or folders cannot be locked here."""
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
