"""A policy's parameters are the fields of its dataclass; here they are described, read, checked.

    knob: float = field(default=8.0, metadata=above(0))

Policies use `above`, `at_least` and `check`; the registry and the command line use the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from rota.errors import PolicyError

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
    """One parameter as a user sees it; `default` is None where it has to be given."""

    name: str
    type: type
    default: Value | None
    bounds: Mapping[str, float]

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
            if self.type in KINDS:
                return self.type(text)
        except (KeyError, ValueError):
            pass
        raise self.refusal(text)

    def admits(self, value: object) -> bool:
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
        return PolicyError(f"parameter '{self.name}' must be {self.allowed}, not '{value}'")


def parameters(policy: type) -> tuple[Parameter, ...]:
    """The parameters of a policy's class, in the order of its fields."""
    if not is_dataclass(policy):
        return ()
    hints = get_type_hints(policy)
    return tuple(
        Parameter(each.name, hints[each.name], _default(each), _bounds(each))
        for each in fields(policy)
        if each.init
    )


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


def _bounds(each: Field[Any]) -> Mapping[str, float]:
    return {name: each.metadata[name] for name in ("above", "at_least") if name in each.metadata}


def _default(each: Field[Any]) -> Value | None:
    if each.default is not MISSING:
        return each.default
    return each.default_factory() if each.default_factory is not MISSING else None
