"""Connect to a port inside the network namespace of a container.

A process cannot enter the user namespace of a rootless container while it has threads, so a small
child process enters the namespaces, connects, and passes the connected socket back.
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys

from rota.engines.local.supervisor import proc

START_S = 10.0
"""How long the child may take beside the connection itself."""
CHILD = """
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def enter(kind):
    if libc.setns(os.open(f"/proc/{sys.argv[1]}/ns/{kind}", os.O_RDONLY), 0):
        raise OSError(ctypes.get_errno(), kind)
try:
    try:
        enter("net")
    except PermissionError:
        enter("user")
        enter("net")
    there = socket.create_connection(("127.0.0.1", int(sys.argv[2])), float(sys.argv[3]))
except OSError as error:
    sys.exit(error.errno or errno.ETIMEDOUT)
socket.send_fds(socket.socket(fileno=int(sys.argv[4])), [b"x"], [there.fileno()])
"""
"""Ends with an error number as its exit code."""


def container_pid(marker: str) -> int | None:
    """A process of this worker that has a network namespace of its own; None if all share ours."""
    ours = _namespace("self")
    found = (pid for pid in proc.with_marker(marker) if _namespace(str(pid)) not in ("", ours))
    return next(found, None)


def connect_in(pid: int, port: int, *, timeout_s: float) -> socket.socket:
    """Connect to a port of 127.0.0.1 in the network namespace of a process. Blocks."""
    ours, childs = socket.socketpair()
    with ours, childs:
        words = [str(pid), str(port), str(timeout_s), str(childs.fileno())]
        try:
            child = subprocess.run(
                [sys.executable, "-I", "-S", "-c", CHILD, *words],
                pass_fds=[childs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
                timeout=timeout_s + START_S,
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        if child.returncode:
            number = child.returncode if child.returncode > 0 else errno.EIO
            raise OSError(number, os.strerror(number))
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    there = socket.socket(fileno=fds[0])
    there.setblocking(False)
    return there


def _namespace(pid: str) -> str:
    """Empty if the process has ended or may not be examined."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""
