"""Messages of validation errors, and the log of internal errors."""

import asyncio
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import FastAPI
from pydantic import Field, TypeAdapter, ValidationError
from structlog.testing import capture_logs

from rota.api.errors import install, sentence_of
from rota.wire.jobs import JobRequest


def sentence(kind: Any, value: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)
    return sentence_of(caught.value.errors()[0])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Annotated[int, Field(ge=1)], "0", "'0' is less than 1"),
        (Annotated[int, Field(ge=0)], -3, "-3 is less than 0"),
        (Annotated[int, Field(le=9)], 10, "10 is more than 9"),
        (int, "many", "'many' is not a whole number"),
        (int, 1.5, "1.5 is not a whole number"),
        (float, "x", "'x' is not a number"),
        (bool, "maybe", "'maybe' is neither true nor false"),
        (str, ["x"], "a list is not text"),
        (list[str], {"a": 1}, "an object is not a list"),
        (JobRequest, {}, "it is missing"),
        (JobRequest, "x", "'x' is not an object"),
        (
            Annotated[str, Field(pattern="^[0-9a-f]+$")],
            "zz{z}\x1b",
            "'zz{z}\\x1b' has a character that is not allowed there",
        ),
        (Annotated[str, Field(max_length=2)], "abc", "it has more than 2 characters"),
    ],
)
def test_messages_of_common_validation_errors(kind: Any, value: Any, expected: str) -> None:
    assert sentence(kind, value) == expected


def test_an_internal_error_is_logged() -> None:
    app = FastAPI()
    install(app)

    @app.get("/broken")
    def broken() -> None:
        raise TypeError("a bug")

    async def ask() -> httpx2.Response:
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://rota") as client:
            return await client.get("/broken")

    with capture_logs() as entries:
        answer = asyncio.run(ask())
    assert (answer.status_code, answer.json()["code"]) == (500, "bug")
    (entry,) = entries
    assert (entry["path"], str(entry["exc_info"])) == ("/broken", "a bug")
