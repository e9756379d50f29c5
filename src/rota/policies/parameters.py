"""Describes, parses and checks the parameters of a policy, which are the fields of its dataclass.

    knob: float = field(default=8.0, metadata=above(0))

Policies use `above`, `at_least` and `check`; the registry and the command line use the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from rota.errors import MAX_SHOWN_PATH_CHARS, PolicyError, shown

Value = int | float | bool | str

KINDS: dict[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
}
BOOLEANS = {"true": True, "false": False}


def above(bound: float) -> Mapping[str, float]:
    """Field metadata: the value must be greater than `bound`."""
    return {"above": bound}


def at_least(bound: float) -> Mapping[str, float]:
    """Field metadata: the value must be `bound` or more."""
    return {"at_least": bound}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter, as shown to users. `default` is None if a value is required, or if None is the
    default (`int | None`)."""

    name: str
    type: type
    default: Value | None
    bounds: Mapping[str, float]
    may_be_none: bool = False

    @property
    def allowed(self) -> str:
        """The allowed values as text."""
        words = [f"{bound.replace('_', ' ')} {value:g}" for bound, value in self.bounds.items()]
        return " ".join([KINDS.get(self.type, self.type.__name__), *words])

    def __str__(self) -> str:
        default = "" if self.default is None else f"={show(self.default)}"
        return f"{self.name}{default} ({self.allowed})"

    def read(self, text: str) -> Value:
        """Parse the value that a user wrote."""
        try:
            if self.type is bool:
                return BOOLEANS[text.lower()]
            # Python also accepts 1_000 and digits of other scripts.
            if self.type is str or (self.type in KINDS and text.isascii() and "_" not in text):
                return self.type(text)
        except (KeyError, ValueError):
            pass
        raise self.error_for(text)

    def allows(self, value: object) -> bool:
        """Whether the value has the right type and is within the bounds."""
        if value is None and self.may_be_none:
            return True
        if self.type not in (int, float):
            return True
        numbers = int if self.type is int else int | float
        if isinstance(value, bool) or not isinstance(value, numbers):
            return False
        bounds = self.bounds
        return (
            math.isfinite(value)
            and value > bounds.get("above", -math.inf)
            and value >= bounds.get("at_least", -math.inf)
        )

    def error_for(self, value: object) -> PolicyError:
        """The error for a value that is not allowed."""
        given = show(value) if isinstance(value, Value) else repr(value)
        return PolicyError(f"parameter '{self.name}' must be {self.allowed}, not '{shown(given)}'")


def parameters(policy: type) -> tuple[Parameter, ...]:
    """The parameters of a policy class, in the order of its fields."""
    if not is_dataclass(policy):
        return ()
    try:
        hints = get_type_hints(policy)
        return tuple(_parameter(each, hints[each.name]) for each in fields(policy) if each.init)
    except PolicyError:
        raise
    except (Exception, SystemExit) as error:  # annotations and defaults are foreign code
        wrong = f"cannot read the parameters of policy '{policy.__name__}': {describe_error(error)}"
        raise PolicyError(wrong) from error


def describe_error(error: BaseException) -> str:
    """The failure of foreign code, in one line."""
    words = " ".join([f"{type(error).__name__}:", *str(error).split()])
    return shown(words, MAX_SHOWN_PATH_CHARS).removesuffix(":")


def check(policy: object) -> None:
    """Raise `PolicyError` if a parameter is out of its bounds. For `__post_init__`."""
    for parameter in parameters(type(policy)):
        value: object = getattr(policy, parameter.name)
        if not parameter.allows(value):
            raise parameter.error_for(value)


def show(value: Value) -> str:
    """The value as a user would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _parameter(each: Field[Any], hint: object) -> Parameter:
    # `int | None` allows the same values as `int`, and None.
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
    if get_origin(hint) not in (None, Union, UnionType) or len(kinds) != 1 or kinds[0] not in KINDS:
        known = ", ".join(kind.__name__ for kind in KINDS)
        written = hint.__name__ if isinstance(hint, type) else hint
        raise PolicyError(
            f"parameter '{each.name}' has the type {written}", f"allowed types: {known}"
        )
    may_be_none = NoneType in get_args(hint)
    return Parameter(each.name, kinds[0], _default(each), _bounds(each), may_be_none)


def _bounds(each: Field[Any]) -> Mapping[str, float]:
    return {name: each.metadata[name] for name in ("above", "at_least") if name in each.metadata}


def _default(each: Field[Any]) -> Value | None:
    if each.default is not MISSING:
        return each.default
    return each.default_factory() if each.default_factory is not MISSING else None
