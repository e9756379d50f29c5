"""Signals of the supervisor as a file descriptor for its poll loop."""

from __future__ import annotations

import os
import signal

HANDLED = (signal.SIGTERM, signal.SIGCHLD)
IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def open_signal_fd() -> int:
    """Return a file descriptor that delivers the numbers of handled signals."""
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    for number in HANDLED:
        signal.signal(number, _wake_only)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return read_fd


def drain(fd: int) -> None:
    """Discard the signals that were delivered so far."""
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        return


def _wake_only(_number: int, _frame: object) -> None:
    """Do nothing: the loop reads the signal number from the file descriptor."""
