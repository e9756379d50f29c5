"""Words for the job's own log."""

from __future__ import annotations

import sys


def say(words: str) -> None:
    """On standard error, if there is one; training goes on without."""
    try:
        sys.stderr.write(f"rota: {words}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass
