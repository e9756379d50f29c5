"""Generated requests, valid and invalid by the API description: no response is a 5xx, and every
response has a described shape.

Submitted jobs are held, because their generated commands must not run.
"""

from collections.abc import Iterator
from typing import Any, cast

import httpx2
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from rota.api.app import description
from tests.integration.api.daemon_process import ANNA, ApiDaemon
from tests.support.seed_counts import count

STREAMS = ["/v1/events", "/v1/jobs/{word}/logs"]
HEALTH = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


described = schemathesis.openapi.from_dict(description()).exclude(path="/v1/stop")
fetched, watched = described.exclude(path=STREAMS), described.include(path=STREAMS)
some = settings(max_examples=count(80), suppress_health_check=HEALTH)
few = settings(some, max_examples=count(30))


@pytest.fixture(scope="module")
def anna(daemon: ApiDaemon) -> Iterator[httpx2.Client]:
    with daemon.person(ANNA) as client:
        yield client


@fetched.parametrize()
@some
def test_requests_of_an_administrator_on_the_socket(
    case: schemathesis.Case, daemon: ApiDaemon
) -> None:
    case.validate_response(send(case, daemon.admin), checks=CHECKS)


@fetched.parametrize()
@few
def test_requests_of_a_user_with_a_token(case: schemathesis.Case, anna: httpx2.Client) -> None:
    case.validate_response(send(case, anna), checks=CHECKS)


@watched.parametrize()
@some
def test_streams_begin_or_are_rejected(case: schemathesis.Case, anna: httpx2.Client) -> None:
    answer = anna.send(prepared(case, anna), stream=True)
    try:
        if answer.is_error:
            answer.read()
            case.validate_response(answer, checks=CHECKS)
    finally:
        answer.close()


def send(case: schemathesis.Case, client: httpx2.Client) -> httpx2.Response:
    return client.send(prepared(case, client))


def prepared(case: schemathesis.Case, client: httpx2.Client) -> httpx2.Request:
    """The request of a schemathesis case, for a client of any connection."""
    hold(case.body)
    meant = requests.Request(**case.as_transport_kwargs(base_url="http://rota")).prepare()
    assert meant.method is not None
    # Keep the authentication of the client.
    kept = {name: value for name, value in meant.headers.items() if name != "Authorization"}
    headers, body = cast("dict[str, str]", kept), cast("bytes | None", meant.body)
    return client.build_request(meant.method, meant.path_url, headers=headers, content=body)


def hold(body: Any) -> None:
    jobs = body.get("jobs") if isinstance(body, dict) else None
    for each in [body, *(jobs if isinstance(jobs, list) else [])]:
        if isinstance(each, dict) and "command" in each:
            each["hold"] = True
