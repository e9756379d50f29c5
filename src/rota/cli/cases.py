"""Reads test cases from stdin, one JSON value per line, and prints one answer per line.

Each answer is written at once, so that another program can send a case, wait for its answer and
send the next case.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import NoReturn

from rota.cli.output.console import print_out
from rota.errors import UserError, json_error_message


def print_answers(answer: Callable[[object], object]) -> None:
    """Print the answer to every case. An invalid line stops the command."""
    if sys.stdin is None:
        raise UserError("standard input is closed", "this command reads cases from stdin")
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if not line.strip():
            continue
        try:
            answered = answer(_read(line))
        except UserError as error:
            # The line number comes first, then the field and its error.
            joint = ", " if error.message.startswith("field") else ": "
            raise UserError(f"line {number}{joint}{error.message}", error.hint) from error
        print_out(json.dumps(answered, allow_nan=False))


def _read(line: bytes) -> object:
    try:
        return json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UserError(json_error_message(error)) from None


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")
