"""Unknown fields of a body are rejected by name."""

import asyncio
import json
import threading
from typing import Any

import pytest
from starlette.requests import Request

from rota.api import strict_json
from rota.api.routes.jobs import Batched
from rota.api.strict_json import require_known
from rota.daemon.errors import RefusedError
from rota.wire.jobs import JobRequest

GOOD = {"command": ["true"], "gpus": "0", "env": {"gpsu": "a value of a mapping"}}


def refusal(kind: Any, value: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        require_known(kind, value)
    assert str(caught.value).startswith(f"{caught.value.field}: ")
    return str(caught.value)


def test_a_mistyped_field_is_rejected_with_a_suggestion() -> None:
    expected = "gpsu: unknown field; did you mean 'gpus'?"
    assert refusal(JobRequest, {"command": ["true"], "gpsu": "0"}) == expected


def test_an_unknown_field_in_a_batch_has_the_index_of_its_job() -> None:
    found = refusal(Batched, {"jobs": [GOOD, {**GOOD, "nmae": "x"}]})
    assert found == "jobs.1.nmae: unknown field; did you mean 'name'?"


def test_an_unknown_field_without_a_suggestion_lists_the_known_fields() -> None:
    assert "use jobs" in refusal(Batched, {"\x1b[31m": 1})
    assert "\x1b" not in refusal(Batched, {"\x1b[31m": 1})


@pytest.mark.parametrize("value", [GOOD, {}, [], None, "text", [{"gpsu": 1}]])
def test_other_values_are_not_checked(value: Any) -> None:
    require_known(JobRequest, value)
    require_known(None, value)


@pytest.mark.parametrize(("n_bytes", "is_in_thread"), [(100, False), (200_000, True)])
def test_a_large_body_is_parsed_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, n_bytes: int, *, is_in_thread: bool
) -> None:
    threads: list[int] = []

    def recorded(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        threads.append(threading.get_ident())
        return dict(pairs)

    async def receive() -> dict[str, Any]:
        body = json.dumps({"command": ["x" * n_bytes]}).encode()
        return {"type": "http.request", "body": body, "more_body": False}

    monkeypatch.setattr(strict_json, "reject_duplicates", recorded)
    request = strict_json.StrictRequest(Request({"type": "http"}, receive), JobRequest)
    asyncio.run(request.json())
    assert (threads != [threading.get_ident()]) == is_in_thread
