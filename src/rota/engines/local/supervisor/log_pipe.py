"""The pipe from a worker's output to its log file."""

from __future__ import annotations

import os

from rota.engines.logfiles.writer import LogFile

READ_BYTES = 256 * 1024
READS_IN_A_ROW = 16
"""Bound of reads per call, so that constant output cannot delay a stop request."""


class LogPipe:
    """`fd` is the read end. `worker_fd` is the write end for the worker; the supervisor closes its
    copy after the fork."""

    def __init__(self, log: LogFile) -> None:
        self.log = log
        self.fd, self.worker_fd = os.pipe2(os.O_CLOEXEC)
        self._is_over = False
        os.set_blocking(self.fd, False)

    def read(self) -> bool:
        """Copy the available output to the log; False when every write end is closed."""
        for _ in range(READS_IN_A_ROW):
            try:
                output = os.read(self.fd, READ_BYTES)
            except BlockingIOError:
                return True
            if not output:
                self._is_over = True
                return False
            self.log.write(output)
        return True

    def finish(self) -> None:
        """Copy the available output and close the log. Do not wait for the end of the pipe: a
        foreign process may hold the write end and never close it."""
        if not self._is_over:
            self.read()
        self.log.close()

    def close(self) -> None:
        os.close(self.fd)
