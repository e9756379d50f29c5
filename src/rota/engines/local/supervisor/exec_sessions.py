"""The supervisor's side of exec sessions: commands that run beside a worker.

The supervisor listens on a Unix socket in the worker's directory. The daemon connects and sends one
message with the command and the file descriptors for its input and output. The supervisor answers
once, with the exit code. When the daemon closes the connection (its user left, or the daemon died),
the command and all its descendants get SIGHUP, and SIGKILL soon after. The same happens when the
worker ends or has to stop.

Commands are children of the supervisor. They cannot survive the supervisor, and the GPU is free
only after they have ended.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import socket
import time
from contextlib import suppress
from typing import Any

from rota.engines.local.supervisor import kill_tree, proc, state_files
from rota.engines.local.supervisor.exec_worker import Stdio, exec_worker
from rota.engines.local.supervisor.records import WorkerSpec

BACKLOG_MAX = 64
MESSAGE_BYTES_MAX = 192 * 1024
STDIO_FILES = 3
HANG_UP_S = 1.0
"""From SIGHUP to SIGKILL."""
KILL_AGAIN_S = 0.05
REFUSED = "126 the worker is stopping"


class _ExecSession:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.marker = ""
        """Empty until the daemon has sent the command."""
        self.pid = 0
        """pid of the command while it runs."""
        self.kill_at = math.inf

    def members(self) -> proc.ProcessTable:
        """The command, its descendants, and processes with its marker that lost their parent."""
        found = proc.with_variable(f"{proc.SESSION_MARKER}={self.marker}")
        if not self.pid:
            return found
        command = proc.ProcessIdentity.of_pid(self.pid)
        own = {self.pid: command.start_ticks} if command else {}
        return found | proc.descendants(self.pid) | own

    def send(self, message: str) -> None:
        # The daemon may have closed the connection.
        with suppress(OSError):
            self.connection.send(message.encode())


class ExecServer:
    """The exec sessions of one worker. The loop of the supervisor calls it."""

    def __init__(self, worker_dir: str, spec: WorkerSpec, *, poll: select.poll) -> None:
        self._worker_dir = worker_dir
        self._spec = spec
        self._poll = poll
        self._sessions: dict[int, _ExecSession] = {}
        """By the file descriptor of the connection."""
        self._is_closed = False
        self._listener: socket.socket | None = None

    def open(self) -> None:
        """Listen. The permissions of the directory allow only the daemon to connect."""
        listener = self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        folder = os.open(self._worker_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Through /proc/self/fd, because a socket path is limited to 107 bytes.
            listener.bind(f"/proc/self/fd/{folder}/{state_files.EXEC_SOCKET}")
            listener.listen(BACKLOG_MAX)
        except OSError:
            # The worker runs without exec sessions.
            return
        finally:
            os.close(folder)
        listener.setblocking(False)
        self._poll.register(listener, select.POLLIN)

    def handle(self, fd: int) -> None:
        if self._listener is not None and fd == self._listener.fileno():
            self._accept(self._listener)
            return
        session = self._sessions.get(fd)
        if session is not None and (session.marker or not self._begin(session)):
            self._client_gone(session)

    def next_s(self) -> float:
        """When to call `kill_due` next; infinite if there is nothing to kill."""
        return min((each.kill_at for each in self._sessions.values()), default=math.inf)

    def kill_due(self, now: float) -> None:
        for session in list(self._sessions.values()):
            if session.kill_at > now:
                continue
            session.kill_at = now + KILL_AGAIN_S
            if not kill_tree.kill_all(session.members) and not session.pid:
                self._forget(session)

    def reaped(self, pid: int, code: int) -> None:
        """Handle the exit of a child of the supervisor, which may be a command."""
        for session in self._sessions.values():
            if session.pid == pid:
                session.pid = 0
                session.send(f"{code} {'worker ended' if self._is_closed else ''}")
                self._hang_up(session)

    def end_all(self) -> None:
        self._is_closed = True
        for session in self._sessions.values():
            self._hang_up(session)

    def members(self) -> proc.ProcessTable:
        found: proc.ProcessTable = {}
        for session in self._sessions.values():
            if session.marker:
                found |= session.members()
        return found

    def close(self) -> None:
        for session in self._sessions.values():
            session.connection.close()
        if self._listener is None:
            return
        self._listener.close()
        with suppress(OSError):
            os.unlink(f"{self._worker_dir}/{state_files.EXEC_SOCKET}")

    # -- one session ----------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        self._sessions[connection.fileno()] = _ExecSession(connection)
        self._poll.register(connection, select.POLLIN)

    def _begin(self, session: _ExecSession) -> bool:
        """Start the requested command; False if there is no valid request."""
        try:
            message, fds, _, _ = socket.recv_fds(
                session.connection, MESSAGE_BYTES_MAX, STDIO_FILES, socket.MSG_CMSG_CLOEXEC
            )
        except OSError:
            return False
        try:
            if not message or len(fds) != STDIO_FILES:
                return False
            if self._is_closed:
                session.send(REFUSED)
                return False
            return self._fork(session, json.loads(message), fds=fds)
        except (ValueError, KeyError, TypeError):
            # A daemon of another version may send an unknown request; it must not hurt the worker.
            return False
        finally:
            for fd in fds:
                os.close(fd)

    def _fork(self, session: _ExecSession, request: dict[str, Any], *, fds: list[int]) -> bool:
        spec = self._spec._replace(argv=request["argv"], env=self._spec.env | request["env"])
        stdio = Stdio(*fds, is_terminal=bool(request["is_terminal"]))
        marker = spec.env[proc.SESSION_MARKER]
        # A SIGTERM must reach the command, not the copy of the supervisor before execve.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            pid = os.fork()
        except OSError as error:
            session.send(f"126 {error.strerror}")
            return False
        else:
            if pid == 0:
                exec_worker(spec, stdio=stdio, status_fd=session.connection.fileno())
            session.marker, session.pid = marker, pid
            return True
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def _client_gone(self, session: _ExecSession) -> None:
        """Handle a closed connection."""
        self._poll.unregister(session.connection)
        if session.marker:
            self._hang_up(session)
        else:
            self._forget(session)

    def _hang_up(self, session: _ExecSession) -> None:
        if math.isinf(session.kill_at):
            alive = session.marker and kill_tree.hang_up(session.members)
            session.kill_at = time.monotonic() + (HANG_UP_S if alive else 0.0)

    def _forget(self, session: _ExecSession) -> None:
        fd = session.connection.fileno()
        with suppress(KeyError):
            self._poll.unregister(fd)
        session.connection.close()
        self._sessions.pop(fd, None)
