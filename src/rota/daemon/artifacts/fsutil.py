"""Writing that survives a power cut, and errors of the disk in words."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rota.errors import UnavailableError

BLOCK_BYTES = 4096

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_CLOSED = {errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def faults(folder: Path) -> Generator[None]:
    """Whatever goes wrong with the disk inside the block comes out as an `UnavailableError`."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            words, hint = "no space left to write in", "make room on its disk, then try again"
        elif error.errno in _CLOSED:
            words, hint = "it cannot be written", "check its owner, its mode and how it is mounted"
        else:
            words, hint = (error.strerror or str(error)).lower(), "look at its disk, then try again"
        raise UnavailableError(f"{folder}: {words}", hint) from error


def sync(path: Path) -> None:
    """Of a folder: which names it holds. Of a file: what is in it."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def occupied_bytes(n_bytes: int) -> int:
    """What a file takes at least, so that many small ones count for something."""
    return max(1, -(-n_bytes // BLOCK_BYTES)) * BLOCK_BYTES


def make_folder(path: Path, mode: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)


def empty(folder: Path) -> None:
    """Remove all that is in a folder, as far as it can be removed. Links are not followed."""
    for each in folder.iterdir():
        if each.is_dir() and not each.is_symlink():
            _remove_folder(each)
        else:
            each.unlink(missing_ok=True)


def _remove_folder(folder: Path) -> None:
    # Root needs no rights, and must not give any to what a link was put in place of.
    if os.geteuid() != 0:
        folder.chmod(0o700)
        for parent, names, _ in os.walk(folder):
            for each in (Path(parent, name) for name in names):
                if not each.is_symlink():
                    each.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
