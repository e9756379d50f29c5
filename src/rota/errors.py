"""Every error that a user can meet.

RotaError
├── UserError          what was asked cannot be done as asked; exit code 2
│   ├── InputError     a file, a row or a field of it is wrong
│   ├── NotKeptError   whoever would have to keep it refuses it
│   └── PolicyError    no such policy, or no such parameter
├── UnfencedError      all was written but what some jobs rest upon
└── UnavailableError   nothing is wrong with what was asked, it cannot be done now; exit code 1
    └── StoreError     the file that rota keeps its state in cannot be read or written

A message says what happened, to what, and what would be right: lower case, one line. What it
repeats of the user's words goes through `shown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from json import JSONDecodeError

WORD = 60
"""Characters of a value that tell which one is meant."""
PATH = 200
"""The same of a file's name, whose end counts as much as its start."""


def shown(text: str, most: int = WORD) -> str:
    """A foreign text as a message repeats it: cut, and without a character that a terminal would
    obey instead of showing it."""
    return printable(text if len(text) <= most else f"{text[: most - 3]}...")


def printable(text: str) -> str:
    """All of a text, with nothing in it that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def meant(word: str, known: Iterable[str]) -> str:
    """The hint for a word that is not known but nearly is; else nothing."""
    from difflib import get_close_matches  # noqa: PLC0415 - for mistakes only

    close = get_close_matches(word.lower(), list(known), n=1)
    return f"did you mean '{close[0]}'?" if close else ""


def why_not_json(error: ValueError | RecursionError) -> str:
    """Why `json.loads` refused a line, in words that help whoever wrote it."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, JSONDecodeError):
        return f"not JSON: {error.msg.lower()} at column {error.pos + 1}"
    if isinstance(error, UnicodeDecodeError):
        return "not JSON: not UTF-8 text"
    if "digits" in str(error):  # Python's own words name a setting of Python
        return "not JSON: a number of thousands of digits"
    return f"not JSON: {error}"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class RotaError(Exception):
    """Something to tell the user. Subclasses say whose mistake it was."""

    code = "error"
    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UserError(RotaError):
    code = "bad_request"
    exit_code = 2


class NotKeptError(UserError):
    """Jobs that were submitted and that whoever would have to keep them refuses: an answer to that
    submit alone. Nothing of it is there."""

    code = "refused"


class UnfencedError(RotaError):
    """All was written but the fences of these jobs, which whoever would have to keep them refuses:
    `jobs` says why, by their ids. Nothing of them may start."""

    def __init__(self, jobs: Mapping[str, str]) -> None:
        super().__init__("; ".join(dict.fromkeys(jobs.values())))
        self.jobs = jobs


class UnavailableError(RotaError):
    code = "unavailable"
    exit_code = 1


class Trouble(StrEnum):
    """What is the matter with a store. The first three may pass by themselves."""

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
    """State could not be read or written; what was acknowledged before is as safe as its disk."""

    def __init__(self, trouble: Trouble, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.trouble = trouble


class PolicyError(UserError):
    code = "bad_policy"


@dataclass(frozen=True, slots=True)
class Where:
    """The place of a mistake in a file: row 1 is the first line, header included."""

    file: str
    row: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        row = f", row {self.row}" if self.row is not None else ""
        name = f", field '{shown(self.field)}'" if self.field is not None else ""
        return f"{shown(self.file, PATH)}{row}{name}"


class InputError(UserError):
    """A mistake in something that was read, with its place."""

    code = "bad_input"

    def __init__(self, where: Where, message: str, hint: str = "") -> None:
        super().__init__(f"{where}: {message}", hint)
        self.where = where
