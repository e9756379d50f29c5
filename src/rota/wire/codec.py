"""Convert dataclasses to JSON and back. Unknown fields, from a newer version, are ignored."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import compress
from operator import attrgetter, ne
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
SCALARS: dict[Any, tuple[type, ...]] = {
    str: (str,),
    bool: (bool,),
    int: (int, float),
    float: (float, int),
}
"""The types that a field of a type may have in JSON, which has one type of numbers."""


def dump(value: object) -> str:
    """Return compact JSON of a dataclass, or of lists and dicts of dataclasses."""
    return json.dumps(value, default=_plain, allow_nan=False, separators=(",", ":"))


def dump_brief(value: object) -> str:
    """Return JSON without fields that have their default value; `load` restores them. Defaults must
    never change, because stored JSON would then change its meaning."""
    return json.dumps(value, default=_given, allow_nan=False, separators=(",", ":"))


def load(kind: type[T], value: Any) -> T:
    """Return the dataclass of a JSON value. Raises `TypeError` if the value has another shape; the
    daemon validates requests more strictly elsewhere."""
    return _load(kind, value)


def _plain(value: object) -> dict[str, Any]:
    """Convert one level; the encoder calls again for the next. (`asdict` would copy everything.)"""
    return {name: getattr(value, name) for name in _names(type(value))}


def _given(value: object) -> dict[str, Any]:
    layout = _layout(type(value))
    held = layout.get_all(value)
    # Most fields hold their default, so compare them all in one fast pass.
    changed = map(ne, held, layout.defaults)
    return dict(compress(zip(layout.names, held, strict=True), changed))


class _Layout:
    """The fields of a dataclass. A field without a default has `MISSING`, which equals no value."""

    def __init__(
        self,
        names: tuple[str, ...],
        defaults: tuple[Any, ...],
        get_all: Callable[[object], tuple[Any, ...]],
    ) -> None:
        self.names = names
        self.defaults = defaults
        self.get_all = get_all


@cache
def _layout(kind: Any) -> _Layout:
    names = _names(kind)
    defaults = tuple(
        each.default if each.default_factory is MISSING else each.default_factory()
        for each in fields(kind)
    )
    # For a single name `attrgetter` returns no tuple, so add a second name.
    get = attrgetter(*names, "__class__")
    return _Layout(names, defaults, lambda value: get(value)[:-1])


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _load(kind: Any, value: Any) -> Any:
    if allowed := SCALARS.get(kind):
        return _require(value, *allowed)
    if is_dataclass(kind) and isinstance(kind, type):
        hints, value = _hints(kind), _require(value, dict)
        return kind(**{key: _load(hints[key], item) for key, item in value.items() if key in hints})
    origin, inner = get_origin(kind), get_args(kind)
    if origin is list:
        return [_load(inner[0], item) for item in _require(value, list)]
    if origin is dict:
        return {key: _load(inner[1], item) for key, item in _require(value, dict).items()}
    if origin in (Union, UnionType) and value is not None:
        return _load(next(each for each in inner if each is not type(None)), value)
    return value


def _require(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds):
        raise TypeError(f"{type(value).__name__} instead of {kinds[0].__name__}")
    return value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
