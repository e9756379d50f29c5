"""A policy's parameters are the fields of its dataclass; here they are described, read, checked.

    knob: float = field(default=8.0, metadata=above(0))

Policies use `above`, `at_least` and `check`; the registry and the command line use the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from rota.errors import PATH, PolicyError, shown

Value = int | float | bool | str

KINDS: dict[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a word",
}
WORDS = {"true": True, "false": False}


def above(bound: float) -> Mapping[str, float]:
    return {"above": bound}


def at_least(bound: float) -> Mapping[str, float]:
    return {"at_least": bound}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter as a user sees it; `default` is None where it has to be given, or where
    nothing is a value of its own (`int | None`)."""

    name: str
    type: type
    default: Value | None
    bounds: Mapping[str, float]
    may_be_none: bool = False

    @property
    def allowed(self) -> str:
        """What the parameter takes, in words."""
        words = [f"{bound.replace('_', ' ')} {value:g}" for bound, value in self.bounds.items()]
        return " ".join([KINDS.get(self.type, self.type.__name__), *words])

    def __str__(self) -> str:
        default = "" if self.default is None else f"={show(self.default)}"
        return f"{self.name}{default} ({self.allowed})"

    def read(self, text: str) -> Value:
        """The value that a user wrote."""
        try:
            if self.type is bool:
                return WORDS[text.lower()]
            # Python would also read 1_000 and digits of other scripts.
            if self.type is str or (self.type in KINDS and text.isascii() and "_" not in text):
                return self.type(text)
        except (KeyError, ValueError):
            pass
        raise self.refusal(text)

    def admits(self, value: object) -> bool:
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

    def refusal(self, value: object) -> PolicyError:
        given = show(value) if isinstance(value, Value) else repr(value)
        return PolicyError(f"parameter '{self.name}' must be {self.allowed}, not '{shown(given)}'")


def parameters(policy: type) -> tuple[Parameter, ...]:
    """The parameters of a policy's class, in the order of its fields."""
    if not is_dataclass(policy):
        return ()
    try:
        hints = get_type_hints(policy)
        return tuple(_parameter(each, hints[each.name]) for each in fields(policy) if each.init)
    except PolicyError:
        raise
    except (Exception, SystemExit) as error:  # annotations and defaults may be anybody's code
        wrong = f"cannot read the parameters of policy '{policy.__name__}': {reason(error)}"
        raise PolicyError(wrong) from error


def reason(error: BaseException) -> str:
    """Why foreign code failed, in one line."""
    words = " ".join([f"{type(error).__name__}:", *str(error).split()])
    return shown(words, PATH).removesuffix(":")


def check(policy: object) -> None:
    """Refuse a policy with a parameter out of its bounds; for `__post_init__`."""
    for parameter in parameters(type(policy)):
        value: object = getattr(policy, parameter.name)
        if not parameter.admits(value):
            raise parameter.refusal(value)


def show(value: Value) -> str:
    """The value as a user would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _parameter(each: Field[Any], hint: object) -> Parameter:
    # `int | None` takes what `int` takes.
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
    if get_origin(hint) not in (None, Union, UnionType) or len(kinds) != 1 or kinds[0] not in KINDS:
        known = ", ".join(kind.__name__ for kind in KINDS)
        written = hint.__name__ if isinstance(hint, type) else hint
        raise PolicyError(f"parameter '{each.name}' is {written}", f"a parameter is {known}")
    may_be_none = NoneType in get_args(hint)
    return Parameter(each.name, kinds[0], _default(each), _bounds(each), may_be_none)


def _bounds(each: Field[Any]) -> Mapping[str, float]:
    return {name: each.metadata[name] for name in ("above", "at_least") if name in each.metadata}


def _default(each: Field[Any]) -> Value | None:
    if each.default is not MISSING:
        return each.default
    return each.default_factory() if each.default_factory is not MISSING else None
