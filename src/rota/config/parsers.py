"""What may stand behind a key: each reader takes what TOML or a variable gives, and answers the
value as the program uses it. What it cannot read is a `ValueError` that says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from rota.errors import shown

Value = str | int | float | tuple[str, ...] | dict[str, str]
Reader = Callable[[object], Any]


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_said(value)} is not text")
    return value


def seconds(value: object) -> float:
    """A number, or `90s`, `15m`, `2h`, `1d`."""
    # It brings the kernel's numerics along, for which a submit has no time.
    from rota.core.notation import parse_seconds  # noqa: PLC0415

    return parse_seconds(str(value) if _is_number(value) else text(value))


def size(value: object) -> int:
    """A number of bytes, or `64MiB`."""
    from rota.core.notation import parse_bytes  # noqa: PLC0415

    return parse_bytes(str(value) if _is_number(value) else text(value))


def whole(low: int, high: int) -> Reader:
    """A whole number between two."""

    def read(value: object) -> int:
        word = str(value).strip()
        is_whole = not isinstance(value, bool) and isinstance(value, int | str)
        if not is_whole or not word.removeprefix("-").isascii():
            raise ValueError(f"{_said(value)} is not a whole number")
        if not word.removeprefix("-").isdigit() or not low <= int(word[:20]) <= high:
            raise ValueError(f"{_said(value)} is not a whole number from {low} to {high}")
        return int(word)

    return read


def flag(value: object) -> bool:
    """TOML's `true` and `false`, or the same as a word."""
    word = str(value).lower() if isinstance(value, bool) else text(value).strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"{_said(value)} is neither true nor false")
    return word == "true"


def texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{_said(value)} is not a list of texts")
    return tuple(text(each) for each in cast("list[object]", value))


def variables(value: object) -> dict[str, str]:
    """A table of texts; a number is taken as it is written."""
    if not isinstance(value, dict):
        raise ValueError(f"{_said(value)} is not a table of texts")
    return {
        name: str(each) if _is_number(each) else text(each)
        for name, each in cast("dict[str, object]", value).items()
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _said(value: object) -> str:
    return f"'{shown(str(value))}'"
