"""Errors as HTTP: a status, and a body that says what happened, to what, what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from rota.errors import RotaError, UnavailableError, shown
from rota.wire.box import Problem
from rota.wire.json import dump

log = structlog.get_logger()

STATUS = {
    "bad_request": 400,
    "bad_input": 400,
    "refused": 422,
    "bad_policy": 422,
    "not_found": 404,
    "ambiguous": 409,
    "array": 409,
    "unauthorized": 401,
    "forbidden": 403,
    "too_large": 413,
    "too_slow": 408,
    "too_many": 429,
    "key_reused": 409,
    "unavailable": 503,
}
WORDS = {
    "missing": "it is missing",
    "greater_than_equal": "{given} is less than {ge}",
    "less_than_equal": "{given} is more than {le}",
    "int_parsing": "{given} is not a whole number",
    "int_from_float": "{given} is not a whole number",
    "int_type": "{given} is not a whole number",
    "float_parsing": "{given} is not a number",
    "float_type": "{given} is not a number",
    "finite_number": "{given} is not a number",
    "bool_parsing": "{given} is neither true nor false",
    "bool_type": "{given} is neither true nor false",
    "string_type": "{given} is not text",
    "string_too_short": "it is empty",
    "string_too_long": "it has more than {max_length} characters",
    "string_pattern_mismatch": "{given} has a character that is not allowed there",
    "list_type": "{given} is not a list",
    "dict_type": "{given} is not an object",
    "dataclass_type": "{given} is not an object",
    "enum": "{given} is not one of {expected}",
}
"""Pydantic's name of a mistake -> ours; all others are told as pydantic tells them."""
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 408: {"Connection": "close"}}
CODES = {401: "unauthorized", 404: "not_found", 405: "bad_method"}


def problem_response(problem: Problem, *, status: int) -> Response:
    headers = HEADERS.get(status, {})
    return Response(
        dump(problem), status_code=status, media_type="application/json", headers=headers
    )


def install(app: FastAPI) -> None:
    app.add_exception_handler(RotaError, _told)
    app.add_exception_handler(RequestValidationError, _misshapen)
    app.add_exception_handler(HTTPException, _by_status)
    app.add_exception_handler(Exception, _our_fault)


def told(error: RotaError) -> Response:
    fallback = 503 if isinstance(error, UnavailableError) else 400
    field = getattr(error, "field", "")
    problem = Problem(error.code, error.message, error.hint, {"field": field} if field else {})
    return problem_response(problem, status=STATUS.get(error.code, fallback))


def _told(_: Request, error: Exception) -> Response:
    assert isinstance(error, RotaError)
    return told(error)


def _misshapen(_: Request, error: Exception) -> Response:
    """The first thing that is wrong with a body or a parameter."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = [str(part) for part in first["loc"] if part not in ("body", "query", "path", "header")]
    field = ".".join(place)[:100]
    sentence = sentence_of(first)
    problem = Problem(
        "refused",
        f"{field}: {sentence}" if field else sentence,
        "the shapes of all requests are at /openapi.json",
        {"field": field},
    )
    return problem_response(problem, status=422)


def sentence_of(error: Mapping[str, Any]) -> str:
    """What pydantic found, in our words where it is common."""
    words = WORDS.get(error["type"])
    if words is not None:
        return words.format_map({**error.get("ctx", {}), "given": _given(error.get("input"))})
    message = str(error["msg"])
    return message[:1].lower() + message[1:]


def _given(value: object) -> str:
    if isinstance(value, str):
        return f"'{shown(value)}'"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return "null" if value is None else shown(str(value).lower())


def _by_status(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = CODES.get(error.status_code, "bad_request")
    problem = Problem(code, str(error.detail).lower(), "see /openapi.json for what there is")
    response = problem_response(problem, status=error.status_code)
    response.headers.update(error.headers or {})
    return response


def _our_fault(request: Request, error: Exception) -> Response:
    log.error("request failed", path=request.url.path, exc_info=error)
    problem = Problem(
        "bug", f"something went wrong inside rota ({type(error).__name__})", "see the daemon's log"
    )
    return JSONResponse(
        {"code": problem.code, "message": problem.message, "hint": problem.hint, "details": {}}, 500
    )
