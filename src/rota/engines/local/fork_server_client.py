"""The daemon's side of the nursery: it starts it, asks it for keepers, and hears from them."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

from rota.observe import put_aside

SOURCE = Path(__file__).parents[3]
PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop())
from rota.engines.local.nursery import main
main()
"""
MESSAGE_BYTES_MAX = 4096
RESTART_S = 0.1

Heard = Callable[[list[str]], None]
"""A message's words: `forked FOLDER PID TICKS`, `failed FOLDER WHY`, `started FOLDER`."""


class Cradle:
    """Restarts the nursery if it dies, and repeats to the new one what the old did not answer: a
    keeper that is asked for twice sees that it is too many."""

    def __init__(self, root: Path, heard: Heard) -> None:
        self._root = root
        self._heard = heard
        self._asked: dict[str, None] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._socket: socket.socket | None = None
        self._sockets: set[socket.socket] = set()
        """Also those of dead nurseries, as long as a keeper holds the other side."""
        self._again: asyncio.TimerHandle | None = None
        self._unsent: deque[str] = deque()

    def start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        log = self._root.parent / "nursery.log"
        put_aside(log)
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
        loop.add_reader(ours, self._hear, ours)
        loop.add_reader(self._pidfd, self._mourn)
        self._unsent = deque(self._asked)
        self._send()

    def has_asked(self, folder: str) -> bool:
        """Whether an answer is still to come."""
        return folder in self._asked

    def ask(self, folder: str) -> None:
        self._asked[folder] = None
        self._unsent.append(folder)
        self._send()

    def _send(self) -> None:
        """As many as there is room for, the others when some are answered. Nothing waits for the
        room itself: keepers hold the other side, too, so that it stays open and full when their
        nursery dies."""
        while self._socket is not None and self._unsent:
            try:
                self._socket.send(self._unsent[0].encode())
            except OSError:
                # Full, or the nursery has just died: then its successor is asked again.
                return
            self._unsent.popleft()

    def close(self) -> None:
        """The nursery ends by itself when nobody holds our side of its socket."""
        if self._again is not None:
            self._again.cancel()
        for ours in list(self._sockets):
            self._hang_up(ours)
        if self._process is not None:
            self._forget_process(self._process)

    def _hear(self, ours: socket.socket) -> None:
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
            words = message.decode().split(" ", maxsplit=3)
            if words[0] != "started":
                self._asked.pop(words[1], None)
            self._heard(words)
            self._send()

    def _mourn(self) -> None:
        """The nursery died. Its keepers go on, and so does their line to us; there will be a new
        one, but not at once, in case that something kills them all."""
        assert self._process is not None
        self._forget_process(self._process)
        self._socket = None
        self._again = asyncio.get_running_loop().call_later(RESTART_S, self._start_again)

    def _start_again(self) -> None:
        """Until it works: perhaps there is no process or no file to spare just now."""
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
