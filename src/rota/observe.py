"""The daemon's own log: one line for each thing that happened, as JSON or for people."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog


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
