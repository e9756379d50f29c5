"""What pydantic finds is told in our words."""

from typing import Annotated, Any

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from rota.api.problems import sentence_of
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
def test_common_mistakes(kind: Any, value: Any, expected: str) -> None:
    assert sentence(kind, value) == expected
