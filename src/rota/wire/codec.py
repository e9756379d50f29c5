"""Between dataclasses and JSON. Fields that a newer side sends are ignored by an older one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from itertools import compress
from operator import attrgetter, ne
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def dump(value: object) -> str:
    """Compact JSON of a dataclass, or of lists and dicts of them."""
    return json.dumps(value, default=_plain, allow_nan=False, separators=(",", ":"))


def dump_brief(value: object) -> str:
    """The same, without the fields that hold their defaults: `load` fills them in. What is kept in
    this form would mean something else if a default ever changed, so none may."""
    return json.dumps(value, default=_given, allow_nan=False, separators=(",", ":"))


def load(kind: type[T], value: Any) -> T:
    """The dataclass that this JSON value stands for. Who sent it is trusted as to types: the
    daemon's own check of requests is stricter."""
    return _load(kind, value)


def _plain(value: object) -> dict[str, Any]:
    """One level; the encoder comes back for the next. (`asdict` would copy everything first.)"""
    return {name: getattr(value, name) for name in _names(type(value))}


def _given(value: object) -> dict[str, Any]:
    layout = _layout(type(value))
    held = layout.get_all(value)
    # Most fields hold the very object that is their default, or one like it.
    changed = map(ne, held, layout.defaults)
    return dict(compress(zip(layout.names, held, strict=True), changed))


@dataclass(frozen=True, slots=True)
class _Layout:
    """The fields of a dataclass. One without a default has `MISSING`, which equals nothing."""

    names: tuple[str, ...]
    defaults: tuple[Any, ...]
    get_all: Callable[[object], tuple[Any, ...]]


@cache
def _layout(kind: Any) -> _Layout:
    names = _names(kind)
    defaults = tuple(
        each.default if each.default_factory is MISSING else each.default_factory()
        for each in fields(kind)
    )
    # Of a single name, `attrgetter` would give the value by itself.
    get = attrgetter(*names, "__class__")
    return _Layout(names, defaults, lambda value: get(value)[:-1])


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _load(kind: Any, value: Any) -> Any:
    if is_dataclass(kind) and isinstance(kind, type):
        hints = _hints(kind)
        return kind(**{key: _load(hints[key], item) for key, item in value.items() if key in hints})
    origin, inner = get_origin(kind), get_args(kind)
    if origin is list:
        return [_load(inner[0], item) for item in value]
    if origin is dict:
        return {key: _load(inner[1], item) for key, item in value.items()}
    if origin in (Union, UnionType) and value is not None:
        return _load(next(each for each in inner if each is not type(None)), value)
    return value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
