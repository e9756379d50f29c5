"""Parsers of setting values.

Each parser takes a TOML value or the text of a variable and returns the value for the program. It
raises `ValueError` with a message for the user if the value is invalid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from rota.errors import shown

Value = str | int | float | tuple[str, ...] | dict[str, str]
Reader = Callable[[object], Any]


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_quoted(value)} is not a string")
    return value


def word(value: object) -> str:
    """Text that users also write without quotes: `project = 3`, `time_limit = 01:30:00`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        raise ValueError(f"{_quoted(cast('object', value))} is not a string")
    return str(value)


def seconds(value: object) -> float:
    """A number of seconds, or a time such as `90s`, `15m`, `1:30`."""
    # Imported here, because it loads numeric libraries and `rota submit` must start fast.
    from rota.core.model.units import parse_seconds  # noqa: PLC0415

    return parse_seconds(word(value))


def size(value: object) -> int:
    """A number of bytes, or `64MiB`."""
    from rota.core.model.units import parse_bytes  # noqa: PLC0415

    written = word(value)
    return parse_bytes(f"{written}B" if written.isascii() and written.isdigit() else written)


def whole(low: int, high: int) -> Reader:
    """Return a parser of whole numbers from `low` to `high`."""

    def read(value: object) -> int:
        digits = str(value).strip()
        is_whole = not isinstance(value, bool) and isinstance(value, int | str)
        if not is_whole or not digits.removeprefix("-").isascii():
            raise ValueError(f"{_quoted(value)} is not a whole number")
        if not digits.removeprefix("-").isdigit() or not low <= int(digits[:20]) <= high:
            raise ValueError(f"{_quoted(value)} is not a whole number from {low} to {high}")
        return int(digits)

    return read


def flag(value: object) -> bool:
    """`true` or `false`, as a TOML value or as text."""
    word = str(value).lower() if isinstance(value, bool) else text(value).strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"{_quoted(value)} is neither true nor false")
    return word == "true"


def texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{_quoted(value)} is not a list of strings")
    return tuple(text(each) for each in cast("list[object]", value))


def variables(value: object) -> dict[str, str]:
    """A table of strings; a number becomes its text."""
    if not isinstance(value, dict):
        raise ValueError(f"{_quoted(value)} is not a table of strings")
    return {name: word(each) for name, each in cast("dict[str, object]", value).items()}


def _quoted(value: object) -> str:
    return f"'{shown(str(value))}'"
