"""File system helpers: flush to disk, sizes on disk, and readable errors."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rota.errors import UnavailableError

BLOCK_BYTES = 4096

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def translate_os_errors(folder: Path) -> Generator[None]:
    """Turn every OSError inside the block into an `UnavailableError` that names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            what, hint = "no space left on the disk", "free space on this disk, then retry"
        elif error.errno in _NOT_WRITABLE:
            what, hint = "cannot write to this folder", "check its owner, mode and mount options"
        else:
            what, hint = (error.strerror or str(error)).lower(), "check this disk, then retry"
        raise UnavailableError(f"{folder}: {what}", hint) from error


def sync(path: Path) -> None:
    """Flush a file or a folder (its entries) to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def occupied_bytes(n_bytes: int) -> int:
    """The disk space of a file, rounded up to blocks, so that small files count too."""
    return max(1, -(-n_bytes // BLOCK_BYTES)) * BLOCK_BYTES


def make_folder(path: Path, mode: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
