"""A program's output, passed on as it comes."""

from __future__ import annotations

import os
import select
from typing import Callable

from rota_trainer.lines import Lines

READ_BYTES = 1 << 16


class Passing:
    """From the end of a pipe to one of our own files. `hears` gets the lines, bounded."""

    def __init__(self, source: int, target: int, *, hears: Callable[[str], None]) -> None:
        self.source = source
        self._target = target
        self._hears = hears
        self._lines = Lines()
        self.is_open = True
        os.set_blocking(source, False)

    def pass_on(self) -> bool:
        """What there is now; whether there was anything."""
        try:
            read = os.read(self.source, READ_BYTES)
        except BlockingIOError:
            return False
        if not read or not self._write(read):
            self.close()
            return False
        for line in self._lines.take(read):
            self._hears(line)
        return True

    def drain(self) -> None:
        while self.is_open and self.pass_on():
            pass
        self.close()

    def close(self) -> None:
        """Who writes on gets SIGPIPE, as it would without us in between."""
        if self.is_open:
            self.is_open = False
            os.close(self.source)
            for line in self._lines.rest():
                self._hears(line)

    def _write(self, read: bytes) -> bool:
        left = memoryview(read)
        try:
            while left:
                # Ours may be a file that does not block, if somebody else made it so.
                select.select([], [self._target], [])
                left = left[os.write(self._target, left) :]
        except BlockingIOError:
            return self._write(bytes(left))
        except OSError:
            return False
        return True
