"""The daemon's client of the fork server: starts the server and requests supervisors from it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

from rota.engines.local.supervisor.channel import MESSAGE_BYTES_MAX
from rota.log_setup import rotate_log

SOURCE = Path(__file__).parents[3]
PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop())
from rota.engines.local.supervisor.fork_server import main
main()
"""
RESTART_S = 0.1

OnMessage = Callable[[list[str]], None]
"""Receives a message (`supervisor.channel`): its kind, the worker's directory and the rest."""


class ForkServerClient:
    """Restarts the fork server if it dies, and repeats the unanswered requests to the new one. A
    repeated request is safe: a second supervisor for the same worker finds the lock and exits."""

    def __init__(self, root: Path, on_message: OnMessage) -> None:
        self._root = root
        self._on_message = on_message
        self._asked: dict[str, int] = {}
        """Directory of a worker -> pid of the supervisor that is to run it; 0: a new supervisor."""
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._socket: socket.socket | None = None
        self._sockets: set[socket.socket] = set()
        """Includes sockets of dead fork servers, as long as a supervisor holds the other end."""
        self._again: asyncio.TimerHandle | None = None
        self._unsent: deque[str] = deque()
        """Directories of workers."""

    def start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        log = self._root.parent / "nursery.log"
        rotate_log(log)
        try:
            with theirs, log.open("ab") as complaints:
                # Isolated and without site packages: it starts quickly and stays small.
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-I", "-S", "-c", PROGRAM),
                        *(str(self._root), str(theirs.fileno()), str(SOURCE)),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=complaints,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                    cwd="/",
                )
        except OSError:
            ours.close()
            raise
        self._socket = ours
        self._pidfd = os.pidfd_open(self._process.pid)
        loop = asyncio.get_running_loop()
        self._sockets.add(ours)
        loop.add_reader(ours, self._read_messages, ours)
        loop.add_reader(self._pidfd, self._on_exit)
        # The new fork server knows no supervisors.
        self._asked = dict.fromkeys(self._asked, 0)
        self._unsent = deque(self._asked)
        self._send()

    def has_asked(self, folder: str) -> bool:
        """Whether a request for this worker is unanswered."""
        return folder in self._asked

    def ask(self, folder: str, pid: int = 0) -> None:
        """Request a supervisor for a worker: the one with this pid, or a new one."""
        self._asked[folder] = pid
        self._unsent.append(folder)
        self._send()

    def _send(self) -> None:
        """Send as many requests as the socket accepts. The rest follows when answers arrive.

        Do not wait until the socket is writable: supervisors hold the other end too, so that it
        stays open and full after the fork server has died."""
        while self._socket is not None and self._unsent:
            folder = self._unsent[0]
            pid = self._asked.get(folder, 0)
            try:
                self._socket.send(f"{folder} {pid}".encode() if pid else folder.encode())
            except OSError:
                # The socket is full, or the fork server died: the next one gets the request again.
                return
            self._unsent.popleft()

    def close(self) -> None:
        """Close all sockets. The fork server then exits by itself."""
        if self._again is not None:
            self._again.cancel()
        for ours in list(self._sockets):
            self._hang_up(ours)
        if self._process is not None:
            self._forget_process(self._process)

    def _read_messages(self, ours: socket.socket) -> None:
        while True:
            try:
                message = ours.recv(MESSAGE_BYTES_MAX)
            except BlockingIOError:
                return
            except ConnectionError:
                message = b""
            if not message:
                self._hang_up(ours)
                return
            words = message.decode().split(" ", maxsplit=2)
            kind, folder = words[:2]
            # A supervisor's message answers a request only if the daemon chose the supervisor.
            if kind in ("forked", "failed") or self._asked.get(folder):
                self._asked.pop(folder, None)
            self._on_message(words)
            self._send()

    def _on_exit(self) -> None:
        """Handle the death of the fork server: its supervisors and their sockets stay. A new fork
        server starts after a delay, in case something kills every one of them."""
        assert self._process is not None
        self._forget_process(self._process)
        self._socket = None
        self._again = asyncio.get_running_loop().call_later(RESTART_S, self._start_again)

    def _start_again(self) -> None:
        """Retry until the start succeeds; the machine may be out of processes or files."""
        try:
            self.start()
        except OSError:
            self._again = asyncio.get_running_loop().call_later(RESTART_S, self._start_again)

    def _forget_process(self, process: subprocess.Popen[bytes]) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        process.wait()
        self._process = None

    def _hang_up(self, ours: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(ours)
        ours.close()
        self._sockets.discard(ours)
        if ours is self._socket:
            self._socket = None
