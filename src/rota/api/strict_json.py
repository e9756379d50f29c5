"""Strict JSON bodies: UTF-8, no duplicate keys, no unknown fields.

A mistyped field is an error, and never silently a default. A large body is parsed and validated in
a thread, after cheap limits on what is in it: the work grows with its keys and values, and hostile
bodies have more of them than any request needs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any, cast, get_args, get_origin, get_type_hints

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rota.daemon.errors import RefusedError
from rota.errors import UserError, did_you_mean, json_error_message, shown
from rota.heavy_work import run_heavy

SMALL_BYTES = 32 * 1024
"""A body up to this size is parsed at once on the event loop: a thread costs more."""
KEYS_MAX = 250_000
"""Keys of a body, more than 10,000 jobs have. Colons in texts count, too."""
VALUES_MAX = 1_500_000
"""Values of a body. Commas in texts count, too."""
ENTRIES_MAX = 20_000
"""Entries of one list or table."""


class TooManyValuesError(UserError):
    code = "too_large"


class StrictRequest(Request):
    """`kind` is the type of the body."""

    def __init__(self, request: Request, kind: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._kind = kind

    async def json(self) -> Any:
        body = await self.body()
        if len(body) <= SMALL_BYTES:
            return _decode(body, self._kind)
        return await run_heavy(partial(_decode_large, body, self._kind))


def _decode(body: bytes, kind: Any) -> Any:
    try:
        found = json.loads(body.decode(), object_pairs_hook=reject_duplicates)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, json_error_message(error)) from None
    require_known(kind, found)
    return found


def _decode_large(body: bytes, kind: Any) -> Any:
    """Blocks. Returns the dataclass, so that the caller need not validate it again."""
    if body.count(b":") > KEYS_MAX or body.count(b",") > VALUES_MAX:
        raise TooManyValuesError("the body has too many keys or values", "send fewer jobs at once")
    found = _decode(body, kind)
    return found if kind is None else _validated(kind, found)


def _validated(kind: Any, found: Any) -> Any:
    """The dataclass of a body. Each item of a list of dataclasses is validated apart, so that other
    threads get their turns, and the first invalid item ends the work."""
    lists = {name: inner for name, each in _kinds(kind).items() if (inner := _listed(each))}
    if isinstance(found, dict):
        given = cast("dict[str, Any]", found)
        items = {
            name: [
                _validated_item(inner, item, place=(name, number))
                for number, item in enumerate(given[name])
            ]
            for name, inner in lists.items()
            if isinstance(given.get(name), list)
        }
        found = {**given, **items}
    return _validated_item(kind, found, place=())


def _validated_item(kind: Any, item: Any, *, place: tuple[str | int, ...]) -> Any:
    try:
        return _adapter(kind).validate_python(item)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        located = {**first, "loc": ("body", *place, *first["loc"])}
        raise RequestValidationError([located]) from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


class StrictRoute(APIRoute):
    """The route class of routers whose requests have bodies."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        kind = self.body_field.field_info.annotation if self.body_field else None

        async def strict(request: Request) -> Response:
            try:
                return await handle(StrictRequest(request, kind))
            except HTTPException as error:
                # FastAPI wraps every exception of a body reader.
                if isinstance(error.__cause__, UserError | RequestValidationError):
                    raise error.__cause__ from None
                raise

        return strict


def require_known(kind: Any, value: Any, *, place: str = "") -> None:
    """Raises for the first field that the dataclass, or a dataclass in it, does not have."""
    inner = _listed(kind)
    if inner is not None and isinstance(value, list):
        for number, each in enumerate(cast("list[Any]", value)):
            require_known(inner, each, place=f"{place}{number}.")
    if not is_dataclass(kind) or not isinstance(value, dict):
        return
    given, known = cast("dict[str, Any]", value), _kinds(kind)
    if not given.keys() <= known.keys():
        name = next(each for each in given if each not in known)
        hint = did_you_mean(name, known) or f"use {', '.join(known)}"
        raise RefusedError(f"{place}{shown(name)}", "unknown field", hint)
    for name, each in given.items():
        if isinstance(each, list | dict) and len(cast("list[Any]", each)) > ENTRIES_MAX:
            what = f"it has more than {ENTRIES_MAX:,} entries"
            raise RefusedError(f"{place}{name}", what, "send fewer of them")
    for name in _deep(kind):
        if name in given:
            require_known(known[name], given[name], place=f"{place}{name}.")


@cache
def _listed(kind: Any) -> Any:
    """The dataclass in a list of this kind; None for other kinds."""
    inner = get_args(kind)[0] if get_origin(kind) is list else None
    return inner if is_dataclass(inner) else None


@cache
def _kinds(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


@cache
def _deep(kind: Any) -> tuple[str, ...]:
    """The fields of a dataclass that hold dataclasses."""
    held = _kinds(kind).items()
    return tuple(name for name, each in held if is_dataclass(each) or _listed(each) is not None)


def reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"duplicate key '{shown(twice)}'")
    return found
