"""The fork server: a small Python process from which supervisors are forked.

A fork of a running Python is faster and smaller than a new Python. The daemon starts one fork
server and sends the directory of a worker in each message; the answer holds the supervisor's pid
and start time. The fork server ends with the daemon; supervisors do not.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import traceback

from rota.engines.local.supervisor import proc, supervisor

MESSAGE_BYTES_MAX = 4096


def main() -> None:
    """Serve requests. Arguments: the root directory of all workers, and the socket's descriptor."""
    root, fd = sys.argv[1], int(sys.argv[2])
    os.set_inheritable(fd, False)
    os.set_blocking(fd, False)
    os.umask(0o077)
    # The kernel reaps supervisors; exit records are in the workers' directories.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # SIGTERM stays blocked until the supervisor can handle it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    # Keep the collector away from existing objects, so that their pages stay shared after a fork.
    gc.collect()
    gc.freeze()
    gc.disable()
    while request := receive(fd):
        folder = request.decode()
        send(fd, _fork(root, folder, daemon_fd=fd))


def receive(fd: int) -> bytes:
    """Wait for the next message; empty when the daemon has closed the socket."""
    while True:
        _wait(fd, select.POLLIN)
        try:
            return os.read(fd, MESSAGE_BYTES_MAX)
        except BlockingIOError:
            continue
        except ConnectionError:
            return b""


def send(fd: int, message: str) -> None:
    while True:
        try:
            os.write(fd, message.encode())
        except BlockingIOError:
            _wait(fd, select.POLLOUT)
        except OSError:
            return
        else:
            return


def _fork(root: str, folder: str, *, daemon_fd: int) -> str:
    try:
        pid = os.fork()
    except OSError as error:
        return f"failed {folder} {error.strerror}"
    if pid == 0:
        try:
            supervisor.run_supervisor(root, folder, daemon_fd=daemon_fd)
        except BaseException:  # noqa: BLE001 - the fork must not continue as the fork server
            traceback.print_exc()
        finally:
            os._exit(1)
    identity = proc.ProcessIdentity.of_pid(pid)
    return f"forked {folder} {pid} {identity.start_ticks if identity else 0}"


def _wait(fd: int, event: int) -> None:
    poll = select.poll()
    poll.register(fd, event)
    poll.poll()
