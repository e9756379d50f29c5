"""Connects this process's stdin, stdout and stderr to an exec session of a job."""

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
    from rota.client.exec import WebSocketSession

READ_BYTES = 64 * 1024
STDIN, STDOUT = 0, 1
LAST_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_RESIZED, _CLOSED = b"r", b"o"


def size() -> tuple[int, int]:
    """Rows and columns of this terminal; 24 and 80 if there is none."""
    for fd in (STDOUT, STDIN):
        with suppress(OSError):
            columns, rows = os.get_terminal_size(fd)
            if columns and rows:
                return rows, columns
    return 24, 80


def attach_terminal(session: WebSocketSession, *, on_terminal: bool) -> int:
    """Copy input to the session and output from it until the command ends. Return its exit code."""
    wake_reader, wake_writer = os.pipe()
    uploader = threading.Thread(target=_upload, args=(session, wake_reader), daemon=True)
    with _raw_mode(wake_writer) if on_terminal else nullcontext():
        uploader.start()
        try:
            with closing(session.frames()) as frames:
                for stream, chunk in frames:
                    _write(stream, chunk)
        finally:
            os.write(wake_writer, _CLOSED)
            uploader.join()
            os.close(wake_writer)
            os.close(wake_reader)
    return session.exit_code


def _upload(session: WebSocketSession, wake_reader: int) -> None:
    """Copy stdin and terminal sizes to the session. Runs in its own thread, which is the only one
    that writes to the session."""
    watched = [wake_reader, STDIN] if _is_open(STDIN) else [wake_reader]
    if STDIN not in watched:
        session.finish()
    while True:
        ready, _, _ = select.select(watched, [], [])
        if wake_reader in ready:
            if _CLOSED in os.read(wake_reader, READ_BYTES):
                return
            session.resize(*size())
        if STDIN in ready:
            try:
                chunk = os.read(STDIN, READ_BYTES)
            except OSError:
                chunk = b""
            is_accepted = session.write(chunk) if chunk else session.finish()
            if not chunk or not is_accepted:
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
def _raw_mode(wake_writer: int) -> Generator[None]:
    """Send every key to the command, Ctrl-C included, and report new sizes of the terminal.

    The terminal's settings are restored at the end, also after SIGTERM and SIGHUP.
    """

    def resized(_number: int, _frame: FrameType | None) -> None:
        # A signal handler interrupts any code, so it only wakes the uploading thread.
        os.write(wake_writer, _RESIZED)

    found = termios.tcgetattr(STDIN) if os.isatty(STDIN) else None
    before = {number: signal.signal(number, _exit) for number in LAST_SIGNALS}
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


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
