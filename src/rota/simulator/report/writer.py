"""Writes the report to a file atomically, and checks the target before the simulation."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from rota.errors import MAX_SHOWN_PATH_CHARS, RotaError, UserError, shown

DRAFT = ".rota-report."
"""Prefix of draft files. The name of the report may already have the maximal length."""


def check_target(path: Path) -> None:
    """Raise if the target is not writable, before a long simulation runs in vain."""
    try:
        _try_target(path)
    except (OSError, RuntimeError) as error:
        # Python 3.11 and 3.12 report a loop of links as a RuntimeError without a reason.
        reason = (
            error.strerror if isinstance(error, OSError) else "too many levels of symbolic links"
        )
        raise UserError(f"cannot write {_shown(path)}: {(reason or str(error)).lower()}") from error


def _try_target(path: Path) -> None:
    target = path.resolve()
    folder = target.parent
    if not folder.is_dir():
        raise UserError(f"cannot write {_shown(path)}: no such directory: {_shown(folder)}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"cannot write {_shown(path)}: no permission to write in {_shown(folder)}")
    with suppress(FileNotFoundError):
        # `exists` would hide a name that is too long and a loop of links.
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"cannot write {_shown(path)}: the target is not a regular file")
    # Some directories, like /proc, accept no files whatever their mode.
    with tempfile.TemporaryFile(prefix=DRAFT, dir=folder):
        pass


def write_atomically(path: Path, text: str) -> None:
    """Write a draft in the same directory, then rename it: readers see the old or the new file."""
    target = path.resolve()
    try:
        handle, name = tempfile.mkstemp(prefix=DRAFT, dir=target.parent)
        draft = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.chmod(_mode(target))
            draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RotaError(f"cannot write {_shown(path)}: {error.strerror or error}") from error


def _shown(path: Path) -> str:
    return shown(str(path), MAX_SHOWN_PATH_CHARS)


def _mode(target: Path) -> int:
    """Return the mode of the replaced file, or the default mode of a new file."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
