"""Signals as something to poll for, in a keeper."""

from __future__ import annotations

import os
import signal

HEARD = (signal.SIGTERM, signal.SIGCHLD)
IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def hear() -> int:
    """A file to read their numbers from."""
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    for number in HEARD:
        signal.signal(number, _only_wake)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return read_fd


def _only_wake(_number: int, _frame: object) -> None:
    """The file says which signal it was, and the loop sees to it."""
