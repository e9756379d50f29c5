"""Between this terminal, or whatever stands in for it, and a command far away."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Generator
from contextlib import closing, contextmanager, nullcontext, suppress
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from rota.client.sessions import Session

READ_BYTES = 64 * 1024
STDIN, STDOUT = 0, 1
LAST_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_RESIZED, _OVER = b"r", b"o"


def size() -> tuple[int, int]:
    """Rows and columns of this terminal, or of the usual one."""
    for fd in (STDOUT, STDIN):
        with suppress(OSError):
            columns, rows = os.get_terminal_size(fd)
            if columns and rows:
                return rows, columns
    return 24, 80


def attend(session: Session, *, on_terminal: bool) -> int:
    """Carry input there and output here until the command has ended; its exit code."""
    wakes, wake = os.pipe()
    reading = threading.Thread(target=_upload, args=(session, wakes), daemon=True)
    with _raw(wake) if on_terminal else nullcontext():
        reading.start()
        try:
            with closing(session.frames()) as frames:
                for stream, chunk in frames:
                    _write(stream, chunk)
        finally:
            os.write(wake, _OVER)
            reading.join()
            os.close(wake)
            os.close(wakes)
    return session.exit_code


def _upload(session: Session, wakes: int) -> None:
    """In a thread of its own, the only one that writes to the session."""
    watched = [wakes, STDIN] if _is_open(STDIN) else [wakes]
    if STDIN not in watched:
        session.finish()
    while True:
        ready, _, _ = select.select(watched, [], [])
        if wakes in ready:
            if _OVER in os.read(wakes, READ_BYTES):
                return
            session.resize(*size())
        if STDIN in ready:
            try:
                chunk = os.read(STDIN, READ_BYTES)
            except OSError:
                chunk = b""
            is_taken = session.write(chunk) if chunk else session.finish()
            if not chunk or not is_taken:
                watched.remove(STDIN)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _write(stream: int, chunk: bytes) -> None:
    target = sys.stdout if stream == STDOUT else sys.stderr
    if target is not None and chunk:
        target.buffer.write(chunk)
        target.buffer.flush()


@contextmanager
def _raw(wake: int) -> Generator[None]:
    """Every key goes to the command, Ctrl-C included; and it is told of new sizes. Whatever
    happens, short of SIGKILL, the terminal is left as it was found."""

    def resized(_number: int, _frame: FrameType | None) -> None:
        # Only this: the handler may run in the middle of anything.
        os.write(wake, _RESIZED)

    found = termios.tcgetattr(STDIN) if os.isatty(STDIN) else None
    before = {number: signal.signal(number, _leave) for number in LAST_SIGNALS}
    before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, resized)
    try:
        if found is not None:
            tty.setraw(STDIN, termios.TCSADRAIN)
        yield
    finally:
        if found is not None:
            termios.tcsetattr(STDIN, termios.TCSADRAIN, found)
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
