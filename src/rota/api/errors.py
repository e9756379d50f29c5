"""Turns exceptions into HTTP answers: a status, and a `Problem` with code, message and hint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from rota.errors import RotaError, UnavailableError, shown
from rota.wire.codec import dump
from rota.wire.daemon import Problem

log = structlog.get_logger()

STATUS = {
    "bad_request": 400,
    "bad_input": 400,
    "refused": 422,
    "bad_policy": 422,
    "not_found": 404,
    "ambiguous": 409,
    "array": 409,
    "partial_id": 409,
    "unauthorized": 401,
    "forbidden": 403,
    "too_large": 413,
    "too_slow": 408,
    "too_many": 429,
    "key_reused": 409,
    "unavailable": 503,
}
VALIDATION_MESSAGES = {
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
"""Pydantic's error type -> the message; other types keep pydantic's message."""
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 408: {"Connection": "close"}}
CODES = {401: "unauthorized", 404: "not_found", 405: "bad_method"}


def problem_response(problem: Problem, *, status: int) -> Response:
    headers = HEADERS.get(status, {})
    return Response(
        dump(problem), status_code=status, media_type="application/json", headers=headers
    )


def install(app: FastAPI) -> None:
    """Install the handlers. They are coroutines: Starlette runs plain functions in threads, and
    many failing requests would use up all of them."""
    app.add_exception_handler(RotaError, _handle_rota_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    app.add_exception_handler(Exception, _handle_unexpected_error)


def error_response(error: RotaError) -> Response:
    fallback = 503 if isinstance(error, UnavailableError) else 400
    field = getattr(error, "field", "")
    problem = Problem(error.code, error.message, error.hint, {"field": field} if field else {})
    return problem_response(problem, status=STATUS.get(error.code, fallback))


async def _handle_rota_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RotaError)
    return error_response(error)


async def _handle_validation_error(_: Request, error: Exception) -> Response:
    """Answer with the first error of a body or a parameter."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = [str(part) for part in first["loc"] if part not in ("body", "query", "path", "header")]
    field = ".".join(place)[:100]
    sentence = sentence_of(first)
    problem = Problem(
        "refused",
        f"{field}: {sentence}" if field else sentence,
        "/openapi.json describes all requests",
        {"field": field},
    )
    return problem_response(problem, status=422)


def sentence_of(error: Mapping[str, Any]) -> str:
    """The message of a validation error; common errors have plainer words than pydantic's."""
    words = VALIDATION_MESSAGES.get(error["type"])
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


async def _handle_http_exception(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = CODES.get(error.status_code, "bad_request")
    problem = Problem(code, str(error.detail).lower(), "/openapi.json describes all requests")
    response = problem_response(problem, status=error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _handle_unexpected_error(request: Request, error: Exception) -> Response:
    log.error("request failed", path=request.url.path, exc_info=error)
    problem = Problem(
        "bug", f"internal error ({type(error).__name__})", "see the log of the daemon"
    )
    return JSONResponse(
        {"code": problem.code, "message": problem.message, "hint": problem.hint, "details": {}}, 500
    )
