"""Writes results to stdout, and errors, warnings and notices to stderr.

`rota.cli.main` imports this module before it handles Ctrl-C, so slow imports are inside functions.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.errors import RotaError

MAX_MESSAGE_CHARS = 1000


def print_out(text: str) -> None:
    """Write a result to stdout. The text is flushed, so that a reading program gets it at once.

    Control characters do not reach a terminal: the text may hold words of other users."""
    if sys.stdout.isatty() and not text.isprintable():
        from rota.cli.escapes import neutralise

        text = neutralise(text)
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


class _ErrorFormat:
    """Whether errors are printed as JSON: set by `--json` of the command."""

    is_json = False


def use_json_errors(*, is_json: bool) -> None:
    """From now on, print errors as JSON or as text."""
    _ErrorFormat.is_json = is_json


def print_error(error: RotaError) -> None:
    """Write an error to stderr: as one line, or with `--json` as an object on one line."""
    if not _ErrorFormat.is_json or sys.stderr is None:
        print_err(str(error))
        return
    import json

    described = {"code": error.code, "message": error.message, "hint": error.hint}
    with suppress(OSError):
        sys.stderr.write(f"{json.dumps(described)}\n")
        sys.stderr.flush()


def print_json_line(value: object) -> None:
    """Write a value to stdout as JSON on one line: one of many that come over time."""
    import json

    print_out(json.dumps(value, allow_nan=False))


def ask(question: str) -> bool:
    """Ask a question on stderr. Only an answer that begins with y is a yes."""
    from rota.errors import printable

    sys.stderr.write(printable(question))
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower().startswith("y")


def print_json(value: object) -> None:
    """Write a value to stdout as JSON."""
    import json

    print_out(json.dumps(value, indent=2, allow_nan=False))
