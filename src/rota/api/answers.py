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

_AS_TOLD_ONCE = {
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
}

ERRORS: dict[int | str, dict[str, Any]] = {
    # A model for each status of each route would be made anew: a third of a second at every start.
    400: {"description": "what was asked cannot be done", "model": Problem},
    401: {"description": "who are you?", **_AS_TOLD_ONCE},
    403: {"description": "not yours", **_AS_TOLD_ONCE},
    404: {"description": "no such thing", **_AS_TOLD_ONCE},
    405: {"description": "not that way", **_AS_TOLD_ONCE},
    408: {"description": "too slow", **_AS_TOLD_ONCE},
    409: {
        "description": "more than one is meant, or a key was used for something else",
        **_AS_TOLD_ONCE,
    },
    413: {"description": "too large", **_AS_TOLD_ONCE},
    422: {"description": "a field is wrong", **_AS_TOLD_ONCE},
    429: {"description": "too much at once", **_AS_TOLD_ONCE},
    503: {"description": "not now", **_AS_TOLD_ONCE},
}
