"""Plain lines: answers on stdout, complaints on stderr."""

from __future__ import annotations

import sys
from contextlib import suppress


def say(text: str) -> None:
    """One answer. It leaves at once, so that a program at the other end can wait for it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """What went wrong, as one line whatever is in it. Where nobody can be told, the exit code
    still tells it."""
    if sys.stderr is None:
        return
    with suppress(OSError):
        sys.stderr.write(f"rota: {' '.join(text.split())}\n")
        sys.stderr.flush()
