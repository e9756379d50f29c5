"""Processes as /proc shows them.

A process is identified by pid and start time, so that a reused pid is never taken for the old
process.
"""

from __future__ import annotations

import ctypes
import os
import signal
from functools import cache
from typing import Any, NamedTuple

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_CHILD_SUBREAPER = 36
CLONE3 = 435
"""The number of the system call on all machines that Linux supports since 5.3."""
CLONE_INTO_CGROUP = 0x200000000
MARKER = "ROTA_WORKER"
SESSION_MARKER = "ROTA_SESSION"
ProcessTable = dict[int, int]
"""pid -> start time in clock ticks since boot."""


class ProcessIdentity(NamedTuple):
    """Identifies one process for all time, across reuse of the pid and reboots."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of_pid(cls, pid: int) -> ProcessIdentity | None:
        stat = _stat(pid)
        return cls(pid, stat.start_ticks, boot_id()) if stat else None

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> ProcessIdentity | None:
        """Other fields are ignored. None if a field is missing or has another type."""
        match value:
            case {"pid": int(pid), "start_ticks": int(start_ticks), "boot_id": str(boot)}:
                return cls(pid, start_ticks, boot)
            case _:
                return None

    def open(self) -> int | None:
        """Open a pidfd; None if the process has ended."""
        if self.boot_id != boot_id():
            return None
        return _open_if(self.pid, self.start_ticks)

    def is_alive(self) -> bool:
        pidfd = self.open()
        if pidfd is None:
            return False
        os.close(pidfd)
        return True


class _Stat(NamedTuple):
    state: str
    parent: int
    start_ticks: int


class _CloneArgs(ctypes.Structure):
    """`struct clone_args` of clone3(2)."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            *("flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size"),
            *("tls", "set_tid", "set_tid_size", "cgroup"),
        )
    ]


def fork_into_cgroup(fd: int) -> int:
    """Fork a process that is born in the control group of version 2 whose directory is open as
    `fd`. The caller must have one thread only, and the new process must soon call execve: Python's
    functions for the time after a fork do not run."""
    wanted = _CloneArgs(flags=CLONE_INTO_CGROUP, exit_signal=signal.SIGCHLD, cgroup=fd)
    pid: int = LIBC.syscall(CLONE3, ctypes.byref(wanted), ctypes.sizeof(wanted))
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone3")
    return pid


def become_subreaper() -> None:
    """Make this process the parent of descendants that lose their own parent."""
    if LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


@cache
def boot_id() -> str:
    return _slurp("/proc/sys/kernel/random/boot_id").decode().strip()


def descendants(ancestor: int) -> ProcessTable:
    """All live descendants of a process, whatever their session."""
    stats = {pid: stat for pid in _pids() if (stat := _stat(pid))}
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, []).append(pid)
    found: ProcessTable = {}
    ahead = [ancestor]
    while ahead:
        for pid in children.get(ahead.pop(), ()):
            ahead.append(pid)
            if stats[pid].state not in "ZX":
                found[pid] = stats[pid].start_ticks
    return found


def marker_of(pid: int) -> str:
    """The worker marker of a process; empty without one, or if the process cannot be read."""
    prefix = f"{MARKER}=".encode()
    carried = _slurp(f"/proc/{pid}/environ").split(b"\0")
    found = next((each for each in carried if each.startswith(prefix)), b"")
    return found.removeprefix(prefix).decode(errors="replace")


def with_marker(marker: str) -> ProcessTable:
    """All live processes with this marker in their environment, and their descendants."""
    return with_variable(f"{MARKER}={marker}")


def with_variable(variable: str) -> ProcessTable:
    """All live processes with `NAME=VALUE` in their environment, and their descendants."""
    wanted = variable.encode()
    found: ProcessTable = {}
    for pid in _pids():
        if wanted in _slurp(f"/proc/{pid}/environ").split(b"\0"):
            found.update(descendants(pid))
            stat = _stat(pid)
            if stat and stat.state not in "ZX":
                found[pid] = stat.start_ticks
    return found


def in_cgroup(cgroup_folder: str) -> ProcessTable:
    """All live processes of a control group."""
    pids = _slurp(f"{cgroup_folder}/cgroup.procs").split()
    stats = {int(pid): _stat(int(pid)) for pid in pids}
    return {pid: stat.start_ticks for pid, stat in stats.items() if stat and stat.state not in "ZX"}


def send(pid: int, start_ticks: int, *, number: int) -> None:
    """Send a signal to exactly this process; no effect if it has ended or is not permitted."""
    pidfd = _open_if(pid, start_ticks)
    if pidfd is None:
        return
    try:
        signal.pidfd_send_signal(pidfd, number)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        os.close(pidfd)


def _open_if(pid: int, start_ticks: int) -> int | None:
    try:
        pidfd = os.pidfd_open(pid)
    except (ProcessLookupError, OSError):
        return None
    stat = _stat(pid)
    if stat and stat.start_ticks == start_ticks:
        return pidfd
    os.close(pidfd)
    return None


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _stat(pid: int) -> _Stat | None:
    content = _slurp(f"/proc/{pid}/stat")
    if not content:
        return None
    # The name in parentheses may contain anything, even parentheses and spaces.
    fields = content[content.rindex(b")") + 2 :].split()
    return _Stat(fields[0].decode(), int(fields[1]), int(fields[19]))


def _slurp(path: str) -> bytes:
    """Read a whole file; empty if it does not exist or cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        content = b""
        while chunk := os.read(fd, 65536):
            content += chunk
    except OSError:
        return b""
    else:
        return content
    finally:
        os.close(fd)
