"""Encodes frozen dataclasses as JSON text, and decodes them, according to their type hints.

Both directions are strict: `encode` refuses a value that does not match its hint, so that a store
never acknowledges a value that it cannot read again. `encode` leaves out a field that has its
default value, which keeps a job small. Therefore the default of a stored field must not change
without a new `VERSION` and a conversion of older text in this module.
`tests/integration/store/released` holds text of every version. Fields that a class derives itself
(`init=False`) are not stored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import compress
from operator import attrgetter, is_not
from types import UnionType
from typing import Any, NewType, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from rota.core.estimation.speed_model import PRIOR_SPEEDUPS, SpeedModel, fitted
from rota.core.model.job import JobSpec

VERSION = 2
READABLE_VERSIONS = (1, VERSION)
"""Version 1 stored the speed-ups of a speed model for every size."""
TAG = "kind"
MAX_INTERNED = 10_000

_to_text = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_read_value = json.JSONDecoder().raw_decode

T = TypeVar("T")


class CodecError(ValueError):
    """A value or a text does not match the type hint."""


def encode(value: object) -> str:
    """Return a dataclass as JSON text."""
    return _to_text({"v": VERSION, **_coder(type(value)).pack(value)})


def decode(kind: type[T], text: str) -> T:
    try:
        found, end = _read_value(text)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not JSON: {error}") from None
    if end != len(text):
        raise CodecError(f"not JSON: extra text after character {end}")
    packed = _mapping(found)
    version = packed.pop("v", None)
    if version not in READABLE_VERSIONS:
        raise CodecError(f"encoded as version {version!r}, but this rota reads version {VERSION}")
    return _coder(kind).unpack(packed)


@dataclass(frozen=True, slots=True)
class Coder:
    """Converts values of one type hint to JSON values, and back."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


@cache
def _coder(hint: Any) -> Coder:
    if isinstance(hint, NewType):
        return _coder(hint.__supertype__)
    if hint in (str, int, bool):
        check = _checker(hint)
        return Coder(check, check)
    if hint is float:
        return Coder(_pack_float, _unpack_float)
    if get_origin(hint) in (Union, UnionType):
        return _union(get_args(hint))
    if get_origin(hint) is not None:
        return _container(hint)
    if issubclass(hint, StrEnum):
        return _enumeration(hint)
    if hint is SpeedModel:
        coder = _object(hint)
        return Coder(coder.pack, _speed_model_reader(coder))
    if hint is JobSpec:
        return _interned(_object(hint))
    if is_dataclass(hint):
        return _object(hint)
    raise CodecError(f"cannot encode type {hint}")


def _checker(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        # Exact type: `isinstance` accepts True as an int, and 1 would come back.
        if type(value) is not kind:
            raise CodecError(f"{value!r} is not of type {kind.__name__}")
        return value

    return check


def _pack_float(value: Any) -> float | str:
    if type(value) is float and -math.inf < value < math.inf:
        return value
    if isinstance(value, bool) or not isinstance(value, float | int) or math.isnan(value):
        raise CodecError(f"{value!r} is not a number")
    return str(float(value)) if math.isinf(value) else float(value)


def _unpack_float(value: Any) -> float:
    if value in ("inf", "-inf"):
        return float(value)
    if type(value) is not float or not math.isfinite(value):
        raise CodecError(f"{value!r} is not a number")
    return value


def _enumeration(kind: type[StrEnum]) -> Coder:
    def unpack(value: Any) -> StrEnum:
        try:
            return kind(value)
        except ValueError:
            raise CodecError(f"{value!r} is not a {kind.__name__}") from None

    check = _checker(kind)
    return Coder(lambda value: check(value).value, unpack)


def _union(members: tuple[Any, ...]) -> Coder:
    """An optional value, or one of several dataclasses. A tag with the class name says which."""
    kinds = tuple(each for each in members if each is not type(None))
    if len(kinds) < len(members):
        inner = _coder(kinds[0]) if len(kinds) == 1 else _union(kinds)
        return Coder(
            lambda value: None if value is None else inner.pack(value),
            lambda value: None if value is None else inner.unpack(value),
        )
    by_name: dict[str, type] = {kind.__name__: kind for kind in kinds}

    def pack(value: object) -> dict[str, object]:
        kind = type(value)
        if kind not in kinds:
            raise CodecError(f"{value!r} is not one of {', '.join(by_name)}")
        return {TAG: kind.__name__, **_coder(kind).pack(value)}

    unpackers = {name: _coder(kind).unpack for name, kind in by_name.items()}

    def unpack(packed: Any) -> object:
        # Removes the tag instead of copying the rest: `decode` has just made this object.
        name: Any = _mapping(packed).pop(TAG, None)
        if name not in unpackers:
            raise CodecError(f"{name!r} is not one of {', '.join(by_name)}")
        return unpackers[name](packed)

    return Coder(pack, unpack)


def _container(hint: Any) -> Coder:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple and arguments[-1] is not ...:
        return _pair(*map(_coder, arguments))
    if origin is Mapping:
        pairs = _pair(*map(_coder, arguments))
        return Coder(
            lambda value: [pairs.pack(item) for item in value.items()],
            lambda packed: dict(map(pairs.unpack, _list(packed))),
        )
    item = _coder(arguments[0])
    if origin is tuple:
        return Coder(
            lambda value: list(map(item.pack, value)),
            lambda packed: tuple(map(item.unpack, _list(packed))),
        )
    if origin is frozenset:
        return Coder(
            lambda value: sorted(map(item.pack, value)),
            lambda packed: frozenset(map(item.unpack, _list(packed))),
        )
    raise CodecError(f"cannot encode type {hint}")


def _pair(first: Coder, second: Coder) -> Coder:
    def unpack(packed: Any) -> tuple[Any, Any]:
        items = _list(packed)
        if len(items) != 2:
            raise CodecError(f"{packed!r} is not a pair")
        return first.unpack(items[0]), second.unpack(items[1])

    return Coder(lambda value: [first.pack(value[0]), second.pack(value[1])], unpack)


def _object(kind: Any) -> Coder:
    hints = get_type_hints(kind)
    names = [each.name for each in fields(kind) if each.init]
    coders = {name: _coder(hints[name]) for name in names}
    known = _defaults(kind)
    required = frozenset(names) - known.keys()
    get_all = _getter(names)
    defaults = [known.get(name, MISSING) for name in names]
    packers = [coders[name].pack for name in names]
    unpackers = {name: coders[name].unpack for name in names}

    def pack(value: Any) -> dict[str, object]:
        if type(value) is not kind:
            raise CodecError(f"{value!r} is not of type {kind.__name__}")
        given = get_all(value)
        # Most fields hold the same object as their default. `compress` skips them without an
        # interpreter step per field, which makes this fast enough for every submit.
        each_field = zip(names, packers, given, defaults, strict=True)
        changed = compress(each_field, map(is_not, given, defaults))
        return {name: packer(each) for name, packer, each, default in changed if each != default}

    def unpack(packed: Any) -> object:
        # A restart unpacks every job that has not ended, so this does as little as possible.
        try:
            items = packed.items()
        except AttributeError:
            raise CodecError(f"{packed!r} is not an object") from None
        try:
            read = {name: unpackers[name](value) for name, value in items}
        except KeyError as error:
            raise CodecError(f"{kind.__name__} has no field {error.args[0]}") from None
        if required <= read.keys():
            return kind(**read)
        missing = ", ".join(sorted(required - read.keys()))
        raise CodecError(f"{kind.__name__} lacks required fields: {missing}")

    return Coder(pack, unpack)


def _interned(coder: Coder) -> Coder:
    """Read equal objects as one object. Many jobs of a queue have the same spec: a restart then
    builds the spec once, and the jobs share its memory."""
    known: dict[object, object] = {}

    def unpack(packed: Any) -> object:
        given = _mapping(packed)
        # The types are part of the key, because 1, 1.0 and True are equal.
        key = (tuple(given.items()), tuple(map(type, given.values())))
        try:
            found = known.get(key)
        except TypeError:  # A list or an object inside.
            return coder.unpack(packed)
        if found is None:
            found = coder.unpack(packed)
            if len(known) >= MAX_INTERNED:
                known.clear()
            known[key] = found
        return found

    return Coder(coder.pack, unpack)


def _speed_model_reader(coder: Coder) -> Callable[[Any], SpeedModel]:
    """Reads speed models of all versions. Version 1 has a table of speed-ups: before the first
    measurement this is the assumed table, afterwards the result of a fit, which is repeated."""
    table = _coder(tuple[float, ...])

    def unpack(packed: Any) -> SpeedModel:
        if "speedups" not in _mapping(packed):
            return coder.unpack(packed)
        rest = dict(packed)
        speedups: tuple[float, ...] = table.unpack(rest.pop("speedups"))
        model: SpeedModel = coder.unpack(rest)
        assumed = model.assumed if model.measured else speedups
        if assumed == PRIOR_SPEEDUPS:
            assumed = ()
        if not model.measured:
            return replace(model, assumed=assumed)
        again = fitted(model.measured, assumed, max_workers=len(speedups) - 2)
        return replace(model, assumed=assumed, terms=again.terms)

    return unpack


def _getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    get = attrgetter(*names)
    return lambda value: (get(value),)


def _defaults(kind: Any) -> dict[str, object]:
    found: dict[str, object] = {}
    for each in fields(kind):
        if each.default is not MISSING:
            found[each.name] = each.default
        elif each.default_factory is not MISSING:
            found[each.name] = each.default_factory()
    return found


def _mapping(packed: Any) -> dict[str, object]:
    if not isinstance(packed, dict):
        raise CodecError(f"{packed!r} is not an object")
    return cast("dict[str, object]", packed)


def _list(packed: Any) -> list[Any]:
    if not isinstance(packed, list):
        raise CodecError(f"{packed!r} is not a list")
    return cast("list[Any]", packed)
