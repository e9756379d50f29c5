"""The small files through which keepers and the daemon speak, and how they are written.

A reader sees a whole file or none: what is torn (after a power cut) counts as missing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from typing import Any, cast

PROGRAM = "program.json"
"""What the worker runs: an `order.Order`. Written by the daemon before it asks for a keeper."""
KEEPER = "keeper.json"
"""Who keeps the worker: `procs.Identity` and what belongs to it. Its presence means that a start
happened; there is never a second one in this folder."""
EXIT = "exit.json"
"""How the worker ended: an `order.Ending`. Its presence means that nothing of it is left."""
LOCK = "lock"
"""Held (flock) by the keeper for life, and by a daemon that settles an unborn worker's fate."""
DOOR = "door"
"""A socket at which the keeper takes commands to run beside the worker (`sessions.py`)."""
STOP = "stop.json"
"""In the attempt's folder: it is to stop, or never to start, with this much grace."""
KILL = "kill"
"""In the worker's folder: it is to be ended at once, while the others of its attempt go on."""
RESERVED_BYTES = 4096


def read_json(path: str) -> dict[str, Any] | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        content = _read_all(fd)
    finally:
        os.close(fd)
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def write_json(path: str, value: dict[str, Any]) -> None:
    """Atomic for every reader. Survives the death of processes, not a power cut: after one, no
    process that the file speaks of is left. What does not fit on the disk leaves nothing there."""
    draft = f"{path}.{os.getpid()}.draft"
    content = json.dumps(value).encode()
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        # The kernel writes a part if that is all there is room for, and says so only by its size.
        if os.write(fd, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        os.rename(draft, path)
    except OSError:
        os.unlink(draft)
        raise
    finally:
        os.close(fd)


class Reserved:
    """A file that will be written later, with its space taken now, so that a full disk can
    neither keep a worker's end from being recorded nor end its keeper."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._draft = path + ".reserved"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._fd = os.open(self._draft, flags, 0o600)
        os.posix_fallocate(self._fd, 0, RESERVED_BYTES)

    def publish(self, value: dict[str, Any], *, is_durable: bool) -> None:
        os.pwrite(self._fd, json.dumps(value).encode().ljust(RESERVED_BYTES), 0)
        if is_durable:
            os.fsync(self._fd)
        os.rename(self._draft, self._path)

    def drop(self) -> None:
        """Give the space back, if nothing was written."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._draft)


def _read_all(fd: int) -> bytes:
    content = b""
    while chunk := os.read(fd, 65536):
        content += chunk
    return content
