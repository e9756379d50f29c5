"""Parts of all routes: JSON responses, dependencies, documented errors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Path
from starlette.requests import HTTPConnection
from starlette.responses import Response

from rota.heavy_work import run_heavy
from rota.wire.codec import dump
from rota.wire.daemon import Problem

if TYPE_CHECKING:
    from rota.api.app import Services


def json_response(value: object, *, status: int = 200) -> Response:
    """Serializes without validation: the daemon made the value itself."""
    return Response(dump(value), status_code=status, media_type="application/json")


async def large_json_response(value: object) -> Response:
    """Serializes in a thread: for values that may have thousands of entries."""
    return await run_heavy(partial(json_response, value))


async def _services(connection: HTTPConnection) -> Any:
    return connection.app.state.services


ServicesDep = Annotated["Services", Depends(_services)]
NameOrId = Annotated[
    str,
    Path(
        min_length=1,
        max_length=80,
        pattern=r"^[A-Za-z0-9._\[\]-]+$",
        description="Id of the job, the beginning or end of its id, or its name.",
    ),
]
_PROBLEM_SCHEMA = {
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
}
ERRORS: dict[int | str, dict[str, Any]] = {
    # One model for all statuses: a model per status and route costs 0.3 s at every start.
    400: {"description": "bad request", "model": Problem},
    401: {"description": "authentication required", **_PROBLEM_SCHEMA},
    403: {"description": "forbidden", **_PROBLEM_SCHEMA},
    404: {"description": "not found", **_PROBLEM_SCHEMA},
    405: {"description": "method not allowed", **_PROBLEM_SCHEMA},
    408: {"description": "the client sends too slowly", **_PROBLEM_SCHEMA},
    409: {
        "description": "ambiguous name, or an idempotency key that was used for another request",
        **_PROBLEM_SCHEMA,
    },
    413: {"description": "request too large", **_PROBLEM_SCHEMA},
    422: {"description": "invalid field", **_PROBLEM_SCHEMA},
    429: {"description": "too many requests or streams", **_PROBLEM_SCHEMA},
    503: {"description": "temporarily unavailable", **_PROBLEM_SCHEMA},
}
