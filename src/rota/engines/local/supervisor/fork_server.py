"""The fork server: a small Python process from which supervisors are forked.

A fork of a running Python is faster and smaller than a new Python. The daemon starts one fork
server and sends the directory of a worker in each message; the answer holds the supervisor's pid
and start time. A message with a pid passes the directory to that supervisor, whose worker has
ended: this costs neither a fork nor the copies of its memory pages. The fork server ends with the
daemon, and supervisors without a worker end with the fork server; other supervisors do not.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import traceback

from rota.engines.local.supervisor import proc, supervisor
from rota.engines.local.supervisor.channel import receive, send


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
    # Supervisors inherit the cached value.
    proc.boot_id()
    # Keep the collector away from existing objects, so that their pages stay shared after a fork.
    gc.collect()
    gc.freeze()
    gc.disable()
    ForkServer(root, fd).serve()


class ForkServer:
    def __init__(self, root: str, daemon_fd: int) -> None:
        self._root, self._daemon_fd = root, daemon_fd
        self._channels: dict[int, socket.socket] = {}
        """pid of a supervisor -> the socket that passes it another worker."""
        self._pids: dict[int, int] = {}
        """File descriptor of a channel -> pid of its supervisor."""
        self._poll = select.poll()
        self._poll.register(daemon_fd, select.POLLIN)

    def serve(self) -> None:
        """Serve until the daemon closes its socket."""
        while True:
            for fd, _ in self._poll.poll():
                if fd != self._daemon_fd:
                    self._forget(self._pids[fd])
                elif request := receive(fd):
                    folder, _, pid = request.decode().partition(" ")
                    if not (pid and self._pass_on(folder, int(pid))):
                        send(fd, self._fork(folder))
                else:
                    return

    def _pass_on(self, folder: str, pid: int) -> bool:
        """Pass a worker to a supervisor; False if the supervisor has ended."""
        try:
            self._channels[pid].send(folder.encode())
        except (KeyError, OSError):
            return False
        return True

    def _fork(self, folder: str) -> str:
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            return f"failed {folder} {error.strerror}"
        with theirs:
            try:
                pid = os.fork()
            except OSError as error:
                ours.close()
                return f"failed {folder} {error.strerror}"
            if pid == 0:
                self._run_supervisor(folder, ours=ours, theirs=theirs)
        ours.setblocking(False)
        self._channels[pid], self._pids[ours.fileno()] = ours, pid
        # An ended supervisor hangs up, which poll always reports.
        self._poll.register(ours, 0)
        identity = proc.ProcessIdentity.of_pid(pid)
        return f"forked {folder} {pid} {identity.start_ticks if identity else 0}"

    def _run_supervisor(self, folder: str, *, ours: socket.socket, theirs: socket.socket) -> None:
        """Run the supervisor in the new process, which then ends. The process must not hold the
        channels of other supervisors: they would not see the end of the fork server."""
        try:
            for each in (ours, *self._channels.values()):
                each.close()
            supervisor.run_supervisor(
                self._root, folder, daemon_fd=self._daemon_fd, channel_fd=theirs.fileno()
            )
        except BaseException:  # noqa: BLE001 - the fork must not continue as the fork server
            traceback.print_exc()
        finally:
            os._exit(1)

    def _forget(self, pid: int) -> None:
        """Close the channel of a supervisor that has ended."""
        channel = self._channels.pop(pid)
        self._poll.unregister(channel)
        del self._pids[channel.fileno()]
        channel.close()
