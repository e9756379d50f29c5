"""Commands that are run beside a worker, as its keeper sees to them.

The keeper listens at a door in its folder. A daemon that knocks hands over what to run and the
files that become its input and output; from then on the line between them says one thing in each
direction. From here: how the command ended. From there: that it is held. When the daemon lets go of
the line, because its user went away or because it died, the command and all that it started are
hung up on, and killed soon after. The same happens when the worker ends or is to end.

The commands are the keeper's children. So they cannot outlive it, and no GPU is given on before
they have ended, too.
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

from rota.engines.local import files, procs, tree
from rota.engines.local.child import Stdio, become_worker
from rota.engines.local.order import Order

KNOCKS_MAX = 64
MESSAGE_BYTES_MAX = 192 * 1024
STDIO_FILES = 3
HANG_UP_S = 1.0
"""From SIGHUP to SIGKILL."""
KILL_AGAIN_S = 0.05
REFUSED = "126 the worker is about to end"


class _Session:
    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.marker = ""
        """Empty before the daemon has said what to run."""
        self.pid = 0
        """Of the command, as long as it runs."""
        self.kill_at = math.inf

    def members(self) -> procs.Found:
        """Those below the command, and those that lost it."""
        found = procs.carrying(f"{procs.SESSION_MARKER}={self.marker}")
        if not self.pid:
            return found
        command = procs.Identity.of_pid(self.pid)
        own = {self.pid: command.start_ticks} if command else {}
        return found | procs.descendants(self.pid) | own

    def tell(self, message: str) -> None:
        # Perhaps nobody wants to know any more.
        with suppress(OSError):
            self.line.send(message.encode())


class Sessions:
    """Belongs to one keeper, and is driven by its loop."""

    def __init__(self, place: str, order: Order, *, poll: select.poll) -> None:
        self._place = place
        self._order = order
        self._poll = poll
        self._sessions: dict[int, _Session] = {}
        """By the number of their lines."""
        self._is_closed = False
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def open(self) -> None:
        """The folder's own rights say who may knock: the daemon, and nobody else."""
        folder = os.open(self._place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # The name of a socket may be no longer than 107 bytes; that of a folder may.
            self._door.bind(f"/proc/self/fd/{folder}/{files.DOOR}")
            self._door.listen(KNOCKS_MAX)
        except OSError:
            # A worker without a door is still a worker.
            return
        finally:
            os.close(folder)
        self._door.setblocking(False)
        self._poll.register(self._door, select.POLLIN)

    def heed(self, fd: int) -> None:
        if fd == self._door.fileno():
            self._let_in()
            return
        session = self._sessions.get(fd)
        if session is not None and (session.marker or not self._begin(session)):
            self._let_go(session)

    def next_s(self) -> float:
        """When `kill_due` has something to do."""
        return min((each.kill_at for each in self._sessions.values()), default=math.inf)

    def kill_due(self, now: float) -> None:
        for session in list(self._sessions.values()):
            if session.kill_at > now:
                continue
            session.kill_at = now + KILL_AGAIN_S
            if not tree.end(session.members) and not session.pid:
                self._forget(session)

    def reaped(self, pid: int, code: int) -> None:
        """A child of the keeper's ended, and may have been a command."""
        for session in self._sessions.values():
            if session.pid == pid:
                session.pid = 0
                session.tell(f"{code} {'its worker ended' if self._is_closed else ''}")
                self._hang_up(session)

    def end_all(self) -> None:
        self._is_closed = True
        for session in self._sessions.values():
            self._hang_up(session)

    def members(self) -> procs.Found:
        found: procs.Found = {}
        for session in self._sessions.values():
            if session.marker:
                found |= session.members()
        return found

    def close(self) -> None:
        with suppress(OSError):
            os.unlink(f"{self._place}/{files.DOOR}")

    # -- one session ----------------------------------------------------------------------------

    def _let_in(self) -> None:
        try:
            line, _ = self._door.accept()
        except OSError:
            return
        line.setblocking(False)
        self._sessions[line.fileno()] = _Session(line)
        self._poll.register(line, select.POLLIN)

    def _begin(self, session: _Session) -> bool:
        """Run what the daemon asks for; False if it asks for nothing."""
        try:
            message, fds, _, _ = socket.recv_fds(
                session.line, MESSAGE_BYTES_MAX, STDIO_FILES, socket.MSG_CMSG_CLOEXEC
            )
        except OSError:
            return False
        try:
            if not message or len(fds) != STDIO_FILES:
                return False
            if self._is_closed:
                session.tell(REFUSED)
                return False
            return self._fork(session, json.loads(message), fds=fds)
        except (ValueError, KeyError, TypeError):
            # Whatever a daemon of another version may want, the worker comes first.
            return False
        finally:
            for fd in fds:
                os.close(fd)

    def _fork(self, session: _Session, asked: dict[str, Any], *, fds: list[int]) -> bool:
        order = self._order._replace(argv=asked["argv"], env=self._order.env | asked["env"])
        stdio = Stdio(*fds, is_terminal=bool(asked["is_terminal"]))
        marker = order.env[procs.SESSION_MARKER]
        # As with the worker itself: a SIGTERM must not be lost in the copy of the keeper.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            pid = os.fork()
        except OSError as error:
            session.tell(f"126 {error.strerror}")
            return False
        else:
            if pid == 0:
                become_worker(order, stdio=stdio, complaint_fd=session.line.fileno())
            session.marker, session.pid = marker, pid
            return True
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def _let_go(self, session: _Session) -> None:
        """The daemon has hung up."""
        self._poll.unregister(session.line)
        if session.marker:
            self._hang_up(session)
        else:
            self._forget(session)

    def _hang_up(self, session: _Session) -> None:
        if math.isinf(session.kill_at):
            alive = session.marker and tree.hang_up(session.members)
            session.kill_at = time.monotonic() + (HANG_UP_S if alive else 0.0)

    def _forget(self, session: _Session) -> None:
        fd = session.line.fileno()
        with suppress(KeyError):
            self._poll.unregister(fd)
        session.line.close()
        self._sessions.pop(fd, None)
