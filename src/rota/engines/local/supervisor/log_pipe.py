"""The pipe between a worker's output and its log, as the keeper reads it."""

from __future__ import annotations

import os

from rota.engines.logfiles.writing import LogFile

READ_BYTES = 256 * 1024
READS_IN_A_ROW = 16
"""So that a worker that never stops writing cannot keep its keeper from hearing a stop."""


class Output:
    """`fd` is our side; `worker_fd` becomes the worker's, and has to be closed here after that."""

    def __init__(self, log: LogFile) -> None:
        self.log = log
        self.fd, self.worker_fd = os.pipe2(os.O_CLOEXEC)
        self._is_over = False
        os.set_blocking(self.fd, False)

    def read(self) -> bool:
        """What there is by now; False when nobody holds the other side any more."""
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
        """Not up to the end: a stranger may hold the other side, and never close it."""
        if not self._is_over:
            self.read()
        self.log.close()
