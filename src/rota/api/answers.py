"""Answers as JSON, without a second look at values that we made ourselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Path
from starlette.requests import HTTPConnection
from starlette.responses import Response

from rota.wire.box import Problem
from rota.wire.json import dump

if TYPE_CHECKING:
    from rota.api.app import House


def answer(value: object, *, status: int = 200) -> Response:
    return Response(dump(value), status_code=status, media_type="application/json")


async def _house(connection: HTTPConnection) -> Any:
    return connection.app.state.house


Reaches = Annotated["House", Depends(_house)]
Word = Annotated[
    str,
    Path(
        min_length=1,
        max_length=80,
        pattern=r"^[A-Za-z0-9._\[\]-]+$",
        description="The id of a job, its beginning or end, or its name.",
    ),
]

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": words}
    for status, words in {
        400: "what was asked cannot be done",
        401: "who are you?",
        403: "not yours",
        404: "no such thing",
        405: "not that way",
        408: "too slow",
        409: "more than one is meant, or a key was used for something else",
        413: "too large",
        422: "a field is wrong",
        429: "too much at once",
        503: "not now",
    }.items()
}
