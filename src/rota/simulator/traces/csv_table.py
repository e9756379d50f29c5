"""Reads tables with a header line out of CSV files, and says exactly what is wrong with one.

Every trace reader and the profile tables come through here, so that a malformed file gives the
same kind of message everywhere: file, row, field, what is there and what would be right.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from rota.errors import InputError, Where, shown

MAX_ROWS = 5_000_000
MAX_FILE_BYTES = 1_000_000_000
MAX_NUMBER = 1e12
"""Thirty thousand years in seconds: whatever is larger is a mistake, and sums stay finite."""


class Row:
    """One line of a table: its fields by the name of their column."""

    __slots__ = ("_columns", "_values", "file", "line")

    def __init__(
        self, file: str, line: int, columns: Mapping[str, int], values: Sequence[str]
    ) -> None:
        self.file = file
        self.line = line
        self._columns = columns
        self._values = values

    def text(self, field: str) -> str:
        """The field as it stands, without blanks around it; empty where there is none."""
        column = self._columns.get(field)
        return self._values[column].strip() if column is not None else ""

    def name(self, field: str) -> str:
        text = self.text(field)
        if "\0" in text:
            self._raise(field, "has a NUL byte in it", hint="save the file as plain text")
        return text or self._raise(field, "is empty", hint="give a value")

    def number(self, field: str) -> float:
        """A finite number that is not negative."""
        value = self._number(field)
        if not 0 <= value <= MAX_NUMBER:
            self._raise(field, f"'{self.shown(field)}' is not between 0 and {MAX_NUMBER:g}")
        return value

    def positive(self, field: str) -> float:
        value = self._number(field)
        if not 0 < value <= MAX_NUMBER:
            self._raise(field, f"'{self.shown(field)}' is not above 0 and at most {MAX_NUMBER:g}")
        return value

    def whole(self, field: str, at_least: int = 1) -> int:
        value = self._number(field)
        if not (at_least <= value <= MAX_NUMBER and value.is_integer()):
            self._raise(field, f"'{self.shown(field)}' is not a whole number from {at_least} up")
        return int(value)

    def shown(self, field: str) -> str:
        """The field as a message repeats it."""
        return shown(self.text(field))

    def _number(self, field: str) -> float:
        value = number_in(self.text(field))
        if math.isnan(value):
            wrong = f"'{self.shown(field)}' is not a number"
            self._raise(field, wrong, hint="write a number such as 120")
        return value

    def wrong(self, field: str, message: str, *, hint: str = "") -> InputError:
        return InputError(Where(self.file, self.line, field), message, hint)

    def _raise(self, field: str, message: str, *, hint: str = "") -> NoReturn:
        raise self.wrong(field, message, hint=hint)


def number_in(text: str) -> float:
    """NaN where the text is none. Python would also read 1_000 and digits of other scripts."""
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan


def check_file(path: Path, file: str) -> None:
    """Refuses what cannot be a trace before anything of it is read."""
    if path.exists() and not path.is_file():
        raise InputError(Where(file), "is not a file")
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
    except OSError as error:
        raise _unreadable(file, error) from None
    if size == 0:
        raise InputError(Where(file), "is empty", "the first line names the columns")
    if size > MAX_FILE_BYTES:
        raise InputError(
            Where(file), f"has {size:,} bytes, above the limit of {MAX_FILE_BYTES:,}", "split it"
        )


def read_header(path: Path, file: str) -> tuple[str, ...]:
    """The names of the columns, which tell the formats apart."""
    check_file(path, file)
    for _, fields in _records(path, file):
        return tuple(name.strip() for name in fields)
    raise InputError(Where(file), "is empty", "the first line names the columns")


def read_rows(path: Path, file: str, *, needed: Sequence[str]) -> Iterator[Row]:
    """The rows below the header, which has at least the needed columns."""
    header = read_header(path, file)
    columns = _columns(file, header)
    missing = [name for name in needed if name not in columns]
    if missing:
        raise InputError(Where(file, 1, missing[0]), "this column is missing")
    records = _records(path, file)
    next(records)
    for line, fields in records:
        if len(fields) != len(header):
            raise InputError(
                Where(file, line), f"has {len(fields)} fields where the header has {len(header)}"
            )
        yield Row(file, line, columns, fields)


def _columns(file: str, header: tuple[str, ...]) -> dict[str, int]:
    columns: dict[str, int] = {}
    for index, name in enumerate(header):
        if name in columns:
            raise InputError(Where(file, 1, name), "this column is there twice")
        columns[name] = index
    return columns


def _records(path: Path, file: str) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and fields; empty lines are passed over."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            line = 0
            try:
                for count, fields in enumerate(reader):
                    line = reader.line_num
                    if count > MAX_ROWS:
                        raise too_many_rows(file)
                    if fields:
                        yield line, fields
            except csv.Error as error:
                raise _not_csv(Where(file, line + 1), error) from None
    except UnicodeDecodeError:
        raise not_text(path, file) from None
    except OSError as error:
        raise _unreadable(file, error) from None


def _not_csv(where: Where, error: csv.Error) -> InputError:
    """The place is where the row begins: a quote that is left open takes in all that follows."""
    if "end of data" in str(error):
        return InputError(where, "is not CSV: a quote is opened and never closed")
    return InputError(where, f"is not CSV: {error}", "look for a quote that is not closed")


def too_many_rows(file: str) -> InputError:
    return InputError(Where(file), f"has more than {MAX_ROWS:,} rows", "split it")


def not_text(path: Path, file: str) -> InputError:
    """Decoding works in blocks, so the line that is to blame has to be looked for."""
    with path.open("rb") as stream:
        for line, content in enumerate(stream, start=1):
            try:
                content.decode()
            except UnicodeDecodeError:
                return InputError(Where(file, line), "is not UTF-8 text", "save it as UTF-8")
    return InputError(Where(file), "is not UTF-8 text", "save it as UTF-8")


def _unreadable(file: str, error: OSError) -> InputError:
    return InputError(Where(file), f"cannot be read: {error.strerror or error}")
