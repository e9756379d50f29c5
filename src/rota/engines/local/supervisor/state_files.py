"""The small files through which supervisors and the daemon communicate.

A reader sees a complete file or none; a torn file (after a power cut) counts as missing, except for
a torn exit record, which counts as an exit with an unknown code. The file names are stored state:
supervisors of other versions use them through an upgrade.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from typing import Any, cast

PROGRAM = "program.json"
"""The worker's `WorkerSpec`. The daemon writes it before it requests a supervisor."""
SUPERVISOR_FILE = "keeper.json"
"""The supervisor's `ProcessIdentity` and details of the start. If it exists, the start has happened
and there is never a second start in this directory."""
EXIT = "exit.json"
"""The worker's `ExitRecord`. If it exists, no process of the worker is left."""
LOCK = "lock"
"""Held (flock) by the supervisor for its whole life, and by the daemon while it writes the exit
record of a worker without a supervisor."""
EXEC_SOCKET = "door"
"""The Unix socket for exec sessions (`exec_sessions.py`)."""
STOP = "stop.json"
"""In the attempt's directory: stop the attempt, or never start it. Holds the grace period."""
JOB_RECORD = "job.json"
"""In the attempt's directory: the job at the start, for a daemon whose store has lost it."""
KILL = "kill"
"""In the worker's directory: kill this worker at once; the others of the attempt continue."""
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
    """Write a file atomically for all readers, or raise `OSError` and leave no file.

    There is no fsync: the file survives a crash of the writer, not a power cut. After a power cut,
    the processes that the file describes are gone too."""
    draft = f"{path}.{os.getpid()}.draft"
    content = json.dumps(value).encode()
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        # On a full disk the kernel may write only a part and report its size, without an error.
        if os.write(fd, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        os.rename(draft, path)
    except OSError:
        os.unlink(draft)
        raise
    finally:
        os.close(fd)


class ReservedFile:
    """A file that is written later, in space that is reserved now: on a full disk, the supervisor
    can still write the exit record and does not fail."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._draft = path + ".reserved"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._fd = os.open(self._draft, flags, 0o600)
        os.posix_fallocate(self._fd, 0, RESERVED_BYTES)
        self._is_published = False

    def publish(self, value: dict[str, Any], *, is_durable: bool) -> None:
        """Write the file. A repeated call changes nothing."""
        if self._is_published:
            return
        os.pwrite(self._fd, json.dumps(value).encode().ljust(RESERVED_BYTES), 0)
        if is_durable:
            os.fsync(self._fd)
        os.rename(self._draft, self._path)
        self._is_published = True

    def close(self) -> None:
        """Release the space if the file was not published."""
        os.close(self._fd)
        if not self._is_published:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._draft)


def _read_all(fd: int) -> bytes:
    content = b""
    while chunk := os.read(fd, 65536):
        content += chunk
    return content


def is_stop_requested(worker_dir: str) -> bool:
    """Whether a stop of the attempt was requested."""
    return os.path.exists(f"{os.path.dirname(worker_dir)}/{STOP}")


def requested_grace_s(worker_dir: str) -> float | None:
    """Return the grace period of the attempt's stop request; None without a request, or if another
    version of the daemon wrote a request without one."""
    request = read_json(f"{os.path.dirname(worker_dir)}/{STOP}") or {}
    found = request.get("grace_s")
    return float(found) if isinstance(found, int | float) else None


def is_kill_requested(worker_dir: str) -> bool:
    """Whether a kill of this worker alone was requested."""
    return os.path.exists(f"{worker_dir}/{KILL}")
