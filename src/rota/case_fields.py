"""Checks the fields of a test case: an object that a user writes as one line of JSON.

`rota policy decide` and `rota projects divide` read such cases. An error names the field and says
what it must be.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Iterable, Mapping
from typing import cast

from rota.errors import UserError, shown

LARGEST = sys.float_info.max

Fields = Mapping[str, object]


def object_of(
    value: object,
    where: str,
    *,
    known: Mapping[str, None],
    required: Iterable[str] = (),
    hint: str = "",
) -> Fields:
    """An object with known fields only and all required ones. `where` is empty for the case."""
    what = where or "a case"
    if not isinstance(value, dict):
        raise UserError(f"{what} must be an object, not {shown(repr(value))}")
    fields = cast("dict[str, object]", value)
    if not fields.keys() <= known.keys():
        unknown = next(name for name in fields if name not in known)
        close = difflib.get_close_matches(unknown, known, n=1)
        guess = f", did you mean '{close[0]}'?" if close else ""
        raise UserError(
            f"{what} has no field '{shown(unknown)}'{guess}", f"known: {', '.join(known)}"
        )
    for name in required:
        if name not in fields:
            raise UserError(f"field '{where + '.' if where else ''}{name}' is missing", hint)
    return fields


def list_of(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        raise UserError(f"field '{where}' must be a list, not {shown(repr(value))}")
    return cast("list[object]", value)


def name_of(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise UserError(f"field '{where}' must be a name, not {shown(repr(value))}")
    return value


def whole(value: object, where: str, *, least: int | None = None, most: int | None = None) -> int:
    if type(value) is int and (least is None or value >= least) and (most is None or value <= most):
        return value
    bounds = (
        "" if least is None else f" from {least}" if most is None else f" from {least} to {most}"
    )
    raise UserError(f"field '{where}' must be a whole number{bounds}, not {shown(repr(value))}")


def number(
    value: object,
    where: str,
    *,
    least: float = -LARGEST,
    most: float = LARGEST,
    what: str = "a finite number",
) -> float:
    if (type(value) is float or type(value) is int) and least <= value <= most:
        return float(value)
    bound = "" if least < 0 else f" from {least:g}"
    bound += "" if most == LARGEST else f" to {most:g}"
    raise UserError(f"field '{where}' must be {what}{bound}, not {shown(repr(value))}")


def number_or_unknown(value: object, where: str, *, least: float = -LARGEST) -> float:
    """A number; infinite if it is unknown or has not happened yet."""
    return math.inf if value is None else number(value, where, least=least)
