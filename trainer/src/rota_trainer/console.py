"""Messages to the job's own log, which is the standard error of the training process."""

from __future__ import annotations

import sys


def print_message(text: str) -> None:
    """Write one line to standard error. Errors are ignored: training must not fail because of it.

    The daemon recognises some of these lines (see `rota.daemon.diagnosis`) by the prefix.
    """
    try:
        sys.stderr.write(f"rota: {text}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass
