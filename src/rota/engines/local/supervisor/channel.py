"""Messages between the daemon, the fork server and the supervisors, on non-blocking sockets.

To the fork server: `FOLDER` starts a worker under a new supervisor, `FOLDER PID` under that
supervisor. To the daemon: `forked FOLDER PID TICKS` or `failed FOLDER REASON` from the fork server,
`started FOLDER` and `ended FOLDER RECORD` from a supervisor. To a supervisor: `FOLDER`.
"""

from __future__ import annotations

import os
import select

MESSAGE_BYTES_MAX = 8192
"""More than the longest message: a reserved exit record (`state_files.RESERVED_BYTES`) and the
directory of a worker."""


def receive(fd: int) -> bytes:
    """Wait for the next message; empty when the other side has closed the socket."""
    while True:
        try:
            return os.read(fd, MESSAGE_BYTES_MAX)
        except BlockingIOError:
            _wait(fd, select.POLLIN)
        except ConnectionError:
            return b""


def send(fd: int, message: str) -> None:
    """Wait until the message is sent, or until the other side has closed the socket."""
    while True:
        try:
            os.write(fd, message.encode())
        except BlockingIOError:
            _wait(fd, select.POLLOUT)
        except OSError:
            return
        else:
            return


def _wait(fd: int, event: int) -> None:
    poll = select.poll()
    poll.register(fd, event)
    poll.poll()
