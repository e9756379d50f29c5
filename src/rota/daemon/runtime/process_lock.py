"""A lock that allows one daemon per state folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rota.errors import UnavailableError

LOCK_NAME = "daemon.lock"


@contextmanager
def hold_process_lock(folder: Path) -> Generator[None]:
    """The operating system releases the lock when the process ends, also after a crash."""
    descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            raise UnavailableError(
                f"a daemon (process {pid}) already uses {folder}",
                "'rota status' shows it, 'rota down' stops it, ROTA_HOME selects another folder",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)
