"""The peer of a Unix socket: its ids as the kernel reports them, and whether it is in a container.

A uid says who the peer is only in the daemon's own namespaces. Root of a container, or of another
user namespace, may have the uid of a user of this machine without being that user.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CREDENTIALS = struct.Struct("iII")
"""pid_t is signed; uid_t and gid_t are unsigned."""
_SO_PEERPIDFD = 77
"""Linux 6.5 and newer. Python has no name for it yet."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that opened the connection. `is_contained`: the process is in another user or pid
    namespace, or the daemon cannot tell; its uid is then no proof of its identity."""

    pid: int
    uid: int
    gid: int
    is_contained: bool


def peer_of(connection: Any) -> Peer | None:
    """None for a connection over TCP."""
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid, gid, _is_contained(connection, pid))


def _is_contained(connection: Any, pid: int) -> bool:
    """The process may end, and another process may get its pid, while its files are read. The pidfd
    still names the first process: if that process has not ended, all files were its own."""
    try:
        pidfd = _pidfd_of(connection, pid)
    except OSError:
        return True
    try:
        is_same = _has_own_namespaces(Path("/proc", str(pid)))
        has_ended = _has_ended(pidfd)
    except OSError:
        return True
    finally:
        os.close(pidfd)
    return has_ended or not is_same


def _has_ended(pidfd: int) -> bool:
    """By poll: select takes no descriptor above 1023, and a busy daemon has more connections."""
    waiter = select.poll()
    waiter.register(pidfd, select.POLLIN)
    return bool(waiter.poll(0))


def _pidfd_of(connection: Any, pid: int) -> int:
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        return os.pidfd_open(pid)


def _has_own_namespaces(folder: Path) -> bool:
    """Whether a process is in the user and pid namespaces of this process."""
    if len(_pids(folder / "status")) != 1:
        return False
    own = Path("/proc/self")
    try:
        return (folder / "ns/user").stat().st_ino == (own / "ns/user").stat().st_ino
    except PermissionError:
        # Other users' processes need a capability. Every process may read the map of uids.
        return (folder / "uid_map").read_bytes() == (own / "uid_map").read_bytes()


def _pids(status: Path) -> list[str]:
    """The pids of a process, from the daemon's namespace down to the process's own."""
    for line in status.read_text(errors="replace").splitlines():
        if line.startswith("NSpid:"):
            return line.split()[1:]
    return []
