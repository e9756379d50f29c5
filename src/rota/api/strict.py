"""Bodies that can be read in one way only: JSON in UTF-8, and no key twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import HTTPException, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from rota.errors import shown, why_not_json


class StrictRequest(Request):
    async def json(self) -> Any:
        body = await self.body()
        try:
            return json.loads(body.decode(), object_pairs_hook=_each_once)
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, why_not_json(error)) from None


class StrictRoute(APIRoute):
    """For routers whose requests have bodies."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strict


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"'{shown(twice)}' is there twice")
    return found
