"""Configures the daemon's log: one line for each event, as JSON or in colour for a terminal."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

import structlog

LOG_BYTES_MAX = 10 * 1024**2


class _Stderr:
    """Standard error, ignoring write errors: a full disk must not stop the daemon."""

    def write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


def log_to_stderr() -> None:
    """Write the log to standard error: in colour on a terminal, as JSON elsewhere."""
    is_terminal = sys.stderr.isatty()
    renderer = (
        structlog.dev.ConsoleRenderer() if is_terminal else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Stderr())),
        cache_logger_on_first_use=True,
    )


def rotate_log(log: Path) -> None:
    """Rename a log that has grown too large to `.1`, replacing an older one. Call this before the
    log is opened; a process that still has the old log open keeps writing to `.1`."""
    with suppress(OSError):
        if log.stat().st_size > LOG_BYTES_MAX:
            log.rename(f"{log}.1")
