"""Plain lines: answers on stdout, complaints on stderr."""

from __future__ import annotations

import sys
from contextlib import suppress

LINE = 1000
"""Characters of a complaint: as much as anybody reads, however much was wrong."""


def say(text: str) -> None:
    """One answer. It leaves at once, so that a program at the other end can wait for it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """What went wrong, as one line whatever is in it. Where nobody can be told, the exit code
    still tells it."""
    # Its imports take time, and this file is loaded before an interrupt is expected.
    from rota.errors import shown

    if sys.stderr is None:
        return
    with suppress(OSError):
        sys.stderr.write(f"rota: {shown(' '.join(text.split()), LINE)}\n")
        sys.stderr.flush()
