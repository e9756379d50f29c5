"""What clean-up could not remove: recorded for an administrator, who sees it in `rota status`.

A log entry is soon forgotten, and only an administrator can remove an immutable file, a mount or a
container of a tool that does not answer. The record is a small file in the state directory, so that
it survives restarts. A path disappears from the record when it no longer exists, anything else
after some days.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from rota.config.atomic_file import replace_file
from rota.errors import printable

log = structlog.get_logger()
MAX_RECORDS = 100
"""Older records are dropped: an administrator who sees so many looks at the log."""
KEEP_S = 7 * 86400.0


class RemainsRecord:
    """Thread-safe. Without a file it is kept in memory only."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._file: Path | None = None
        self._entries: dict[str, tuple[str, float]] = {}
        """What is left -> why, and when it was recorded; the newest last."""

    def keep_in(self, file: Path) -> None:
        """Keep the record in a file. Blocks."""
        with self._lock:
            self._file, self._entries = file, {}
            try:
                stored = json.loads(file.read_text(encoding="utf-8"))
                for what, (why, at_s) in stored.items():
                    self._entries[str(what)] = str(why), float(at_s)
            except FileNotFoundError:
                pass
            except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
                log.warning("record of remains unreadable", file=str(file), error=str(error))

    def record(self, what: str, why: str) -> None:
        """`what` is an absolute path or a description."""
        with self._lock:
            is_new = self._entries.pop(what, ("", 0.0))[0] != why
            self._entries[what] = why, self._clock()
            while len(self._entries) > MAX_RECORDS:
                del self._entries[next(iter(self._entries))]
            if is_new:
                self._save()
        if is_new:
            log.warning("not cleaned up", what=what, reason=why)

    def forget(self, what: str) -> None:
        with self._lock:
            if self._entries.pop(what, None) is not None:
                self._save()

    def warnings(self) -> list[str]:
        """A sentence about each remainder."""
        with self._lock:
            gone = [what for what, (_, at_s) in self._entries.items() if self._is_over(what, at_s)]
            for what in gone:
                del self._entries[what]
            if gone:
                self._save()
            return [
                f"not cleaned up: {printable(what)}: {why}"
                for what, (why, _) in self._entries.items()
            ]

    def _is_over(self, what: str, at_s: float) -> bool:
        if what.startswith("/"):
            return not os.path.lexists(what)
        return self._clock() - at_s > KEEP_S

    def _save(self) -> None:
        if self._file is None:
            return
        try:
            replace_file(self._file, json.dumps(self._entries, indent=0))
        except OSError as error:
            # A full disk must not stop the clean-up.
            log.warning("record of remains not written", error=str(error))


REMAINS = RemainsRecord()
"""The record of this process: files are deleted in many places."""
