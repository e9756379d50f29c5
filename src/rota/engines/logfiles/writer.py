"""A worker's output on disk: bounded, rotated by size, and never a reason for the worker to wait.

Beside `NAME` stands `NAME.times`, a line `OFFSET SECONDS` for each stretch of output, so that the
output itself stays exactly what the program wrote. Older files are `NAME.1`, `NAME.2`, ...
"""

from __future__ import annotations

import contextlib
import os
import time

TIME_STEP_S = 0.05
"""Output that comes closer together than this shares one time stamp."""
FILE_BYTES_MIN = 4096
LINE_REST_BYTES = 16 * 1024


class LogFile:
    def __init__(self, path: str, *, file_bytes: int, n_files: int) -> None:
        self.file_bytes = max(file_bytes, FILE_BYTES_MIN)
        self.n_bytes = 0
        """All that was to be written so far."""
        self.n_dropped_bytes = 0
        self.longest_line_bytes = 0
        """Lines of less than what is written at once may count for less."""
        self.problem = ""
        """Why something was dropped, the last time."""
        self._path = path
        self._n_files = max(n_files, 1)
        self._n_unsaid_bytes = 0
        """Dropped since the last note that said so."""
        self._line_bytes = 0
        """How long the line is that has not ended yet."""
        self._is_in_line = False
        self._fd = self._times_fd = -1
        self._size = 0
        self._stamped_s = 0.0

    def write(self, output: bytes, at_s: float | None = None) -> None:
        """Output of this moment, or of just now. What does not fit on the disk is dropped and
        counted; a note says so once there is room again."""
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
        """What of it this file takes. Its last bytes are for the rest of a line that was begun in
        it: how long a line becomes is not known when its first piece is written."""
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
        """Whether all of it is written; a torn piece is taken back."""
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
