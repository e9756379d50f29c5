"""Strict JSON bodies: UTF-8, no duplicate keys, no unknown fields.

A mistyped field is an error, and never silently a default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, cast, get_args, get_origin, get_type_hints

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rota.daemon.errors import RefusedError
from rota.errors import did_you_mean, json_error_message, shown


class StrictRequest(Request):
    """`kind` is the type of the body."""

    def __init__(self, request: Request, kind: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._kind = kind

    async def json(self) -> Any:
        body = await self.body()
        try:
            found = json.loads(body.decode(), object_pairs_hook=reject_duplicates)
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, json_error_message(error)) from None
        require_known(self._kind, found)
        return found


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
                if isinstance(error.__cause__, RefusedError):
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
