"""Every error that a user can see.

RotaError
├── UserError                the request cannot be done as given; exit code 2
│   ├── InputError           a file, a row or a field is wrong
│   ├── WriteRejectedError   the store rejects the submitted jobs
│   └── PolicyError          unknown policy or bad parameter
├── FenceRejectedError       everything was stored except the fences of some jobs
└── UnavailableError         the request is fine but cannot be done now; exit code 1
    └── StoreError           rota's state cannot be read or written

A message says what happened, to what, and what to do next: lower case, one line. Text from users
goes through `shown`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from json import JSONDecodeError

MAX_SHOWN_CHARS = 60
"""Characters of a value that identify it in a message."""
MAX_SHOWN_PATH_CHARS = 200
"""Characters of a path in a message; the end of a path matters as much as its start."""

MAX_INTERNAL_CHARS = 300
"""Characters of the message of an internal error."""
_VALUES = re.compile(r"""'[^']*'?|"[^"]*"?|\S*/\S*|\S{20,}|(?<==)\S+""")

MAX_SUGGESTION_CHARS = 200
"""The longest unknown word that is compared with known words: time and memory of the comparison
grow with the word, which a hostile request chooses."""


def shown(text: str, most: int = MAX_SHOWN_CHARS) -> str:
    """Foreign text for a message: shortened, and with control characters escaped."""
    return printable(text if len(text) <= most else f"{text[: most - 3]}...")


def printable(text: str) -> str:
    """The whole text, with characters escaped that would control a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The hint for an unknown word that is close to a known one; else empty."""
    if len(word) > MAX_SUGGESTION_CHARS:
        return ""
    from difflib import get_close_matches  # noqa: PLC0415 - needed only after a mistake

    close = get_close_matches(word.lower(), list(known), n=1)
    return f"did you mean '{close[0]}'?" if close else ""


def json_error_message(error: ValueError | RecursionError) -> str:
    """Why `json.loads` rejected a line, for the author of that line."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, JSONDecodeError):
        return f"not JSON: {error.msg.lower()} at column {error.pos + 1}"
    if isinstance(error, UnicodeDecodeError):
        return "not JSON: not UTF-8 text"
    if "digits" in str(error):  # Python's own message names an internal Python setting
        return "not JSON: a number has thousands of digits"
    return f"not JSON: {error}"


def os_error_message(error: OSError) -> str:
    """What went wrong, and with which file."""
    reason = (error.strerror or str(error)).lower()
    return f"{error.filename}: {reason}" if error.filename else reason


def internal_error_message(error: BaseException) -> str:
    """Type and message of an error that no code expects, for the history of a job. Quoted values,
    paths and long words are left out, because they may be secrets of the job; the log of the daemon
    has all of the error."""
    message = _VALUES.sub("...", str(error)[:MAX_INTERNAL_CHARS])
    return f"{type(error).__name__}: {printable(message)}" if message else type(error).__name__


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class RotaError(Exception):
    """An error to show to the user. The subclass tells whether the request or the service is at
    fault."""

    code = "error"
    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UserError(RotaError):
    """The request cannot be done as given."""

    code = "bad_request"
    exit_code = 2


class WriteRejectedError(UserError):
    """The store rejects the jobs of one submission. None of them is stored."""

    code = "refused"


class FenceRejectedError(RotaError):
    """Everything was stored except the fences of these jobs, which the store rejects. `jobs` maps
    job ids to reasons. No worker of these jobs may start."""

    def __init__(self, jobs: Mapping[str, str]) -> None:
        super().__init__("; ".join(dict.fromkeys(jobs.values())))
        self.jobs = jobs


class UnavailableError(RotaError):
    """The request is fine but cannot be done now."""

    code = "unavailable"
    exit_code = 1


class StoreErrorKind(StrEnum):
    """What is wrong with a store. The first three kinds may resolve by themselves."""

    FULL = "full"
    LOCKED = "locked"
    IO = "io"
    READ_ONLY = "read_only"
    MISSING = "missing"
    DAMAGED = "damaged"
    FOREIGN = "foreign"
    NEWER = "newer"
    REFUSED = "refused"
    CLOSED = "closed"


class StoreError(UnavailableError):
    """State cannot be read or written. State that was acknowledged earlier is safe on disk."""

    def __init__(self, kind: StoreErrorKind, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.kind = kind


class PolicyError(UserError):
    """The policy or one of its parameters is unknown or invalid."""

    code = "bad_policy"


@dataclass(frozen=True, slots=True)
class InputLocation:
    """The position of an error in a file. Row 1 is the first line, including the header."""

    file: str
    row: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        row = f", row {self.row}" if self.row is not None else ""
        name = f", field '{shown(self.field)}'" if self.field is not None else ""
        return f"{shown(self.file, MAX_SHOWN_PATH_CHARS)}{row}{name}"


class InputError(UserError):
    """An error in an input file, with its position."""

    code = "bad_input"

    def __init__(self, where: InputLocation, message: str, hint: str = "") -> None:
        super().__init__(f"{where}: {message}", hint)
        self.where = where
