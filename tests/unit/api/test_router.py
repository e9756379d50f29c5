"""Routes are built at their first request; the description needs no request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.responses import Response

from rota.api.router import LazyRoute, LazyRouter


class _CountedRoute(APIRoute):
    built: ClassVar[list[str]] = []

    def __init__(self, path: str, *arguments: Any, **options: Any) -> None:
        self.built.append(path)
        super().__init__(path, *arguments, **options)


@pytest.fixture
def app() -> Iterator[FastAPI]:
    router = LazyRouter(prefix="/v1", route_class=_CountedRoute, responses={400: {"model": str}})

    @router.get("/rooms/{room}", response_model=list[int])
    async def show(room: int) -> Response:
        return Response(f"room {room}")

    @router.post("/rooms")
    async def create() -> Response:
        return Response(status_code=201)

    app = FastAPI()
    app.router.routes.extend(router.routes)
    yield app
    _CountedRoute.built.clear()


def test_a_route_is_built_once_at_its_first_request(app: FastAPI) -> None:
    assert _CountedRoute.built == []
    assert asyncio.run(_request(app, "GET", "/v1/rooms/7")) == (200, b"room 7")
    assert asyncio.run(_request(app, "GET", "/v1/rooms/8")) == (200, b"room 8")
    assert _CountedRoute.built == ["/v1/rooms/{room}"]


def test_a_wrong_method_or_parameter_is_rejected(app: FastAPI) -> None:
    assert asyncio.run(_request(app, "DELETE", "/v1/rooms"))[0] == 405
    assert asyncio.run(_request(app, "GET", "/v1/rooms/seven"))[0] == 422
    assert asyncio.run(_request(app, "GET", "/v1/floors"))[0] == 404


def test_only_the_description_has_models_of_responses(app: FastAPI) -> None:
    asyncio.run(_request(app, "GET", "/v1/rooms/7"))
    show = next(each for each in app.routes if isinstance(each, LazyRoute))
    described = show.described()
    assert described.response_field is not None
    assert described.response_fields.keys() == {400}


async def _request(app: FastAPI, method: str, path: str) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": []}
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])
