"""The small prepared parent that keepers are forked from: a Python that has started already.

The daemon starts one and sends it folders, one to a message; it answers with the keeper's process
number and start time. It ends when the daemon does. Keepers do not.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import traceback

from rota.engines.local import keeper, procs

MESSAGE_BYTES_MAX = 4096


def main() -> None:
    """Called with the folder of all workers and the number of the socket."""
    root, fd = sys.argv[1], int(sys.argv[2])
    os.set_inheritable(fd, False)
    os.set_blocking(fd, False)
    os.umask(0o077)
    # Keepers are reaped by the kernel; how a worker ended stands in its folder.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A keeper hears it as soon as it can heed it; until then it waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    # What is there already is left alone by the collector, so that its pages stay shared.
    gc.collect()
    gc.freeze()
    gc.disable()
    while request := receive(fd):
        folder = request.decode()
        tell(fd, _fork(root, folder, daemon_fd=fd))


def receive(fd: int) -> bytes:
    """The next message; empty when the daemon is gone."""
    while True:
        _wait(fd, select.POLLIN)
        try:
            return os.read(fd, MESSAGE_BYTES_MAX)
        except BlockingIOError:
            continue
        except ConnectionError:
            return b""


def tell(fd: int, message: str) -> None:
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
            keeper.keep(root, folder, daemon_fd=daemon_fd)
        except BaseException:  # noqa: BLE001 - a fork must not go on as its parent
            traceback.print_exc()
        finally:
            os._exit(1)
    identity = procs.Identity.of_pid(pid)
    return f"forked {folder} {pid} {identity.start_ticks if identity else 0}"


def _wait(fd: int, event: int) -> None:
    poll = select.poll()
    poll.register(fd, event)
    poll.poll()
