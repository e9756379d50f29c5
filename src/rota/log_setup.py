"""The daemon's own log: one line for each thing that happened, as JSON or for people."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

import structlog

LOG_BYTES_MAX = 10 * 1024**2


class _Stderr:
    """A log that cannot be written, on a full disk say, is no reason to fail."""

    def write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


def log_to_stderr() -> None:
    """Times, levels, keys; in colours on a terminal, as JSON anywhere else."""
    is_terminal = sys.stderr.isatty()
    shown = structlog.dev.ConsoleRenderer() if is_terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            shown,
        ],
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Stderr())),
        cache_logger_on_first_use=True,
    )


def put_aside(log: Path) -> None:
    """Before a log is opened: one that has grown large becomes `.1`, in place of the one before.
    Whoever still writes to it goes on there."""
    with suppress(OSError):
        if log.stat().st_size > LOG_BYTES_MAX:
            log.rename(f"{log}.1")
