"""Putting the report where the user wants it: all of it or nothing."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from rota.errors import PATH, RotaError, UserError, shown

DRAFT = ".rota-report."
"""Without the name of the report, which may be as long as a name can be."""


def check_target(path: Path) -> None:
    """Refuse a place that cannot be written, before the long run that leads up to it."""
    try:
        _try_target(path)
    except (OSError, RuntimeError) as error:
        # Python 3.11 and 3.12 report a loop of links as a RuntimeError without a reason.
        why = error.strerror if isinstance(error, OSError) else "too many levels of symbolic links"
        raise UserError(f"cannot write {_shown(path)}: {(why or str(error)).lower()}") from error


def _try_target(path: Path) -> None:
    target = path.resolve()
    folder = target.parent
    if not folder.is_dir():
        raise UserError(f"cannot write {_shown(path)}: there is no folder {_shown(folder)}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"cannot write {_shown(path)}: no right to write in {_shown(folder)}")
    with suppress(FileNotFoundError):
        # `exists` would be silent about a name that is too long, and about a loop of links.
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"cannot write {_shown(path)}: it is not a regular file")
    # Some folders, like /proc, take no files whatever the rights say.
    with tempfile.TemporaryFile(prefix=DRAFT, dir=folder):
        pass


def write_whole(path: Path, text: str) -> None:
    """Write beside the target, then rename: a reader sees the old file or the new one."""
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
    return shown(str(path), PATH)


def _mode(target: Path) -> int:
    """The rights of the file that is replaced, or those that any new file would get here."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
