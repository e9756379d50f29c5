"""Write a worker's output to log files: bounded, rotated by size, never blocking the worker.

`NAME` holds the output byte for byte. `NAME.times` holds the time stamps: one line
`OFFSET SECONDS` for each stretch of output. Rotated files are `NAME.1`, `NAME.2` and so on, with
`.times` files of their own. If the disk is full, output is dropped and counted.

Supervisors import this module. It must import the standard library only (ADR 0012).
"""

from __future__ import annotations

import contextlib
import os
import time

TIME_STEP_S = 0.05
"""Writes within this time of one another share one time stamp."""
FILE_BYTES_MIN = 4096
LINE_REST_BYTES = 16 * 1024
"""Space at the end of a file that only the rest of an unfinished line may use."""


class LogFile:
    """The log of one worker."""

    def __init__(self, path: str, *, file_bytes: int, n_files: int) -> None:
        self.file_bytes = max(file_bytes, FILE_BYTES_MIN)
        self.n_bytes = 0
        """All output so far, dropped output included."""
        self.n_dropped_bytes = 0
        self.longest_line_bytes = 0
        """A lower bound: lines shorter than one write may not be measured."""
        self.problem = ""
        """Why output was last dropped."""
        self._path = path
        self._n_files = max(n_files, 1)
        self._n_unsaid_bytes = 0
        """Bytes dropped since the last note about dropped output."""
        self._line_bytes = 0
        """Length of the unfinished line."""
        self._is_in_line = False
        self._fd = self._times_fd = -1
        self._size = 0
        self._stamped_s = 0.0

    def write(self, output: bytes, at_s: float | None = None) -> None:
        """Write output of the time `at_s` (default: now). If the disk is full, the output is
        dropped and counted, and a note in the log says so when there is space again."""
        self._measure(output)
        if self._fd < 0:
            self._open()
        if self._n_unsaid_bytes and self._put(self._note()):
            self._n_unsaid_bytes = 0
        while output:
            piece = self._fitting(output)
            if not piece:
                self._rotate()
                continue
            self._stamp(time.time() if at_s is None else at_s)
            if not self._put(piece):
                self._drop(len(output))
                return
            output = output[len(piece) :]

    def _fitting(self, output: bytes) -> bytes:
        """Return the part of `output` that fits into this file. The last bytes of a file are
        reserved for the rest of a line that begins in it, because the length of a line is unknown
        when its first piece is written."""
        room = self.file_bytes - self._size
        to_begin_in = max(room - min(LINE_REST_BYTES, self.file_bytes // 8), 0)
        if len(output) <= to_begin_in:
            return output
        if whole_lines := output.rfind(b"\n", 0, to_begin_in) + 1:
            return output[:whole_lines]
        if self._is_in_line or not self._size:
            return output[: min(output.find(b"\n") + 1 or room, room)]
        return b""

    def _measure(self, output: bytes) -> None:
        self.n_bytes += len(output)
        first = output.find(b"\n")
        self._line_bytes += len(output) if first < 0 else first
        self.longest_line_bytes = max(self.longest_line_bytes, self._line_bytes)
        if first >= 0:
            self._line_bytes = len(output) - output.rfind(b"\n") - 1

    def close(self) -> None:
        if self._n_unsaid_bytes:
            self._put(self._note())
        for fd in (self._fd, self._times_fd):
            if fd >= 0:
                os.close(fd)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            self._fd = os.open(self._path, flags, 0o600)
            self._times_fd = os.open(self._path + ".times", flags, 0o600)
            self._size = os.fstat(self._fd).st_size
        except OSError as error:
            self.problem = (error.strerror or str(error)).lower()
        self._stamped_s = 0.0

    def _rotate(self) -> None:
        for fd in (self._fd, self._times_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._times_fd = -1
        self._size = 0
        for suffix in (".times", ""):
            self._shift(suffix)
        self._open()

    def _shift(self, suffix: str) -> None:
        for number in range(self._n_files - 1, 0, -1):
            older = f"{self._path}.{number}{suffix}"
            newer = f"{self._path}.{number - 1}{suffix}" if number > 1 else self._path + suffix
            with contextlib.suppress(FileNotFoundError):
                os.rename(newer, older)
        if self._n_files == 1:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path + suffix)

    def _stamp(self, at_s: float) -> None:
        if at_s - self._stamped_s < TIME_STEP_S:
            return
        self._stamped_s = at_s
        with contextlib.suppress(OSError):
            os.write(self._times_fd, b"%d %.3f\n" % (self._size, at_s))

    def _put(self, output: bytes) -> bool:
        """Write all of `output` or nothing; return whether it was written."""
        try:
            written = os.write(self._fd, output)
            if written < len(output):
                os.ftruncate(self._fd, self._size)
                self.problem = "no space left on device"
                return False
        except OSError as error:
            self.problem = (error.strerror or str(error)).lower()
            return False
        self._size += written
        self._is_in_line = not output.endswith(b"\n")
        return True

    def _drop(self, n_bytes: int) -> None:
        self.n_dropped_bytes += n_bytes
        self._n_unsaid_bytes += n_bytes

    def _note(self) -> bytes:
        return b"\n[rota] %d bytes of output were dropped here: %s\n" % (
            self._n_unsaid_bytes,
            self.problem.encode(),
        )
