"""Reads CSV files with a header line, with exact error messages.

All trace readers use this module, so that a malformed file gives the same kind of message for every
format: file, row, field, the value found and the values allowed.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from rota.errors import InputError, InputLocation, shown

HEADER_HINT = "the first line must name the columns"
UTF8_HINT = "save the file as UTF-8"
MAX_ROWS = 5_000_000
MAX_FILE_BYTES = 1_000_000_000
MAX_NUMBER = 1e12
"""Thirty thousand years in seconds. A larger number is a mistake; the limit keeps sums finite."""


class CsvRow:
    """One row of a table, with its fields by column name."""

    __slots__ = ("_columns", "_values", "file", "line")

    def __init__(
        self, file: str, line: int, columns: Mapping[str, int], values: Sequence[str]
    ) -> None:
        self.file = file
        self.line = line
        self._columns = columns
        self._values = values

    def text(self, field: str) -> str:
        """Return the field without surrounding blanks; empty if the table has no such column."""
        column = self._columns.get(field)
        return self._values[column].strip() if column is not None else ""

    def name(self, field: str) -> str:
        text = self.text(field)
        if "\0" in text:
            self._raise(field, "contains a NUL byte", hint="save the file as plain text")
        return text or self._raise(field, "is empty", hint="add a value")

    def number(self, field: str) -> float:
        """Return a number between 0 and `MAX_NUMBER`."""
        value = self._number(field)
        if not 0 <= value <= MAX_NUMBER:
            self._raise(field, f"'{self.shown(field)}' is not between 0 and {MAX_NUMBER:g}")
        return value

    def positive(self, field: str) -> float:
        """Return a number above 0, up to `MAX_NUMBER`."""
        value = self._number(field)
        if not 0 < value <= MAX_NUMBER:
            self._raise(field, f"'{self.shown(field)}' is not above 0 and at most {MAX_NUMBER:g}")
        return value

    def whole(self, field: str, at_least: int = 1) -> int:
        value = self._number(field)
        if not (at_least <= value <= MAX_NUMBER and value.is_integer()):
            self._raise(
                field, f"'{self.shown(field)}' is not a whole number of at least {at_least}"
            )
        return int(value)

    def shown(self, field: str) -> str:
        """Return the field shortened and escaped, for error messages."""
        return shown(self.text(field))

    def error(self, field: str, message: str, *, hint: str = "") -> InputError:
        return InputError(InputLocation(self.file, self.line, field), message, hint)

    def _number(self, field: str) -> float:
        value = number_in(self.text(field))
        if math.isnan(value):
            message = f"'{self.shown(field)}' is not a number"
            self._raise(field, message, hint="write a number such as 120")
        return value

    def _raise(self, field: str, message: str, *, hint: str = "") -> NoReturn:
        raise self.error(field, message, hint=hint)


def number_in(text: str) -> float:
    """Parse a number; NaN if the text is not one.

    Unlike `float`, reject `1_000` and the digits of other scripts.
    """
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan


def check_file(path: Path, file: str) -> None:
    """Raise for a file that cannot be a trace, before reading it."""
    if path.exists() and not path.is_file():
        raise InputError(InputLocation(file), "is not a regular file")
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
    except OSError as error:
        raise _unreadable(file, error) from None
    if size == 0:
        raise InputError(InputLocation(file), "is empty", HEADER_HINT)
    if size > MAX_FILE_BYTES:
        raise InputError(
            InputLocation(file),
            f"has {size:,} bytes, above the limit of {MAX_FILE_BYTES:,}",
            "split the file",
        )


def read_header(path: Path, file: str) -> tuple[str, ...]:
    """Return the column names, which identify the format."""
    check_file(path, file)
    for _, fields in _records(path, file):
        return tuple(name.strip() for name in fields)
    raise InputError(InputLocation(file), "is empty", HEADER_HINT)


def read_rows(path: Path, file: str, *, needed: Sequence[str]) -> Iterator[CsvRow]:
    """Yield the rows below the header. Raise if one of the needed columns is missing."""
    header = read_header(path, file)
    columns = _columns(file, header)
    missing = [name for name in needed if name not in columns]
    if missing:
        raise InputError(InputLocation(file, 1, missing[0]), "this column is missing")
    records = _records(path, file)
    next(records)
    for line, fields in records:
        if len(fields) != len(header):
            raise InputError(
                InputLocation(file, line),
                f"has {len(fields)} fields, but the header has {len(header)}",
            )
        yield CsvRow(file, line, columns, fields)


def _columns(file: str, header: tuple[str, ...]) -> dict[str, int]:
    columns: dict[str, int] = {}
    for index, name in enumerate(header):
        if name in columns:
            raise InputError(InputLocation(file, 1, name), "the header has this column twice")
        columns[name] = index
    return columns


def _records(path: Path, file: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the fields of each record. Skip empty lines."""
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
                raise _not_csv(InputLocation(file, line + 1), error) from None
    except UnicodeDecodeError:
        raise not_text(path, file) from None
    except OSError as error:
        raise _unreadable(file, error) from None


def _not_csv(where: InputLocation, error: csv.Error) -> InputError:
    """`where` is the start of the row: an unclosed quote includes all lines that follow."""
    if "end of data" in str(error):
        return InputError(where, "is not CSV: a quote is never closed")
    return InputError(where, f"is not CSV: {error}", "look for an unclosed quote")


def too_many_rows(file: str) -> InputError:
    return InputError(InputLocation(file), f"has more than {MAX_ROWS:,} rows", "split the file")


def not_text(path: Path, file: str) -> InputError:
    """Find the line that is not UTF-8: the decoder works in blocks and does not report lines."""
    with path.open("rb") as stream:
        for line, content in enumerate(stream, start=1):
            try:
                content.decode()
            except UnicodeDecodeError:
                return InputError(InputLocation(file, line), "is not UTF-8 text", UTF8_HINT)
    return InputError(InputLocation(file), "is not UTF-8 text", UTF8_HINT)


def _unreadable(file: str, error: OSError) -> InputError:
    return InputError(InputLocation(file), f"cannot be read: {error.strerror or error}")
