"""Writes results to stdout, and errors, warnings and notices to stderr.

`rota.cli.main` imports this module before it handles Ctrl-C, so slow imports are inside functions.
"""

from __future__ import annotations

import sys
from contextlib import suppress

MAX_MESSAGE_CHARS = 1000


def print_out(text: str) -> None:
    """Write a result to stdout. The text is flushed, so that a reading program gets it at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_err(text: str) -> None:
    """Write an error, a warning or a notice to stderr, as one line.

    If stderr is closed, only the exit code reports the error.
    """
    from rota.errors import shown

    if sys.stderr is None:
        return
    with suppress(OSError):
        sys.stderr.write(f"rota: {shown(' '.join(text.split()), MAX_MESSAGE_CHARS)}\n")
        sys.stderr.flush()


def print_json(value: object) -> None:
    """Write a value to stdout as JSON."""
    import json

    print_out(json.dumps(value, indent=2, allow_nan=False))
