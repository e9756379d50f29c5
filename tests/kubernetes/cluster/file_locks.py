"""File locks between processes; the kernel releases them when the holder exits."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

POLL_S = 0.05


@contextmanager
def locked(path: Path, *, is_shared: bool = False) -> Iterator[None]:
    """Wait for the lock without a time limit: the work of its holders is bounded."""
    with opened(path) as file:
        fcntl.flock(file, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX)
        yield


def held(path: Path, *, patience_s: float = 0.0) -> IO[str] | None:
    """The open file that holds the lock, or None if another process keeps it for that long."""
    file = opened(path)
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() >= until:
                file.close()
                return None
            time.sleep(POLL_S)


def opened(path: Path) -> IO[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a")
