"""The rendezvous routes of torchrun agents, under a real daemon: rights and invalid requests."""

from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
import schemathesis

from rota_trainer.torchrun.messages import ARRIVE, LARGEST_VALUE, LONGEST_KEY, STORE, WATCH
from tests.integration.api.daemon_process import ANNA, ApiDaemon, submit
from tests.integration.api.test_schema import CHECKS, described, prepared, some
from tests.integration.api.test_training import TELL_TOKEN, token_of
from tests.support.timeouts import PATIENCE_S

HERE = {"host": "127.0.0.1", "port": 4000}
AT = {"worker": 0, "generation": 0, "turn": 1}


@pytest.fixture(scope="module")
def job(daemon: ApiDaemon) -> str:
    """A job with two workers that the daemon knows to run: earlier requests get no assignment."""
    made = submit(daemon.admin, **TELL_TOKEN, gpus="2", gpus_per_worker=1, grace="1s")
    daemon.reaches(made, "running")
    return made


@pytest.fixture(scope="module")
def worker(daemon: ApiDaemon, job: str) -> Iterator[httpx2.Client]:
    with daemon.by_tcp(token_of(daemon, job)) as client:
        yield client


def asked(client: httpx2.Client, path: str, **fields: Any) -> dict[str, Any]:
    answer = client.post(path, json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


BODIES = {
    ARRIVE: {"worker": 0, **HERE},
    WATCH: AT,
    STORE: {**AT, "deed": "count"},
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.usefixtures("job")
def test_user_tokens_are_rejected(daemon: ApiDaemon, path: str) -> None:
    with daemon.person(ANNA) as anna, daemon.by_tcp() as stranger:
        assert anna.post(path, json=BODIES[path]).json()["code"] == "forbidden"
        assert stranger.post(path, json=BODIES[path]).status_code == 401
    assert daemon.admin.post(path, json=BODIES[path]).status_code == 403


def both_meet(worker: httpx2.Client) -> tuple[dict[str, Any], dict[str, Any]]:
    """Let both workers arrive, and return their assignments; a repetition returns the same."""
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(asked, worker, ARRIVE, worker=0, wait_s=30, **HERE)
        second = asked(worker, ARRIVE, worker=1, host="other", port=5000, wait_s=30)
        return first.result(PATIENCE_S), second


def test_rendezvous_waits_for_both_workers(worker: httpx2.Client) -> None:
    assert asked(worker, ARRIVE, worker=0, **HERE)["state"] == "waiting"
    assert asked(worker, ARRIVE, worker=0, wait_s=0.05, **HERE)["state"] == "waiting"
    first, second = both_meet(worker)
    assert first["rank"] == 0
    # The address at which the first worker waits for the others.
    assert second == {"state": "met", **AT_0, "rank": 1, "size": 2, **HERE}
    assert asked(worker, WATCH, **AT) == {"is_called": False, "generation": -1}
    # A worker of a generation that is not the newest.
    assert asked(worker, WATCH, worker=0, generation=7, turn=1)["is_called"]


AT_0 = {"generation": 0, "turn": 1}


def test_worker_outside_of_the_job_is_told_to_leave(worker: httpx2.Client) -> None:
    both_meet(worker)
    assert asked(worker, ARRIVE, worker=9, **HERE)["state"] == "left"
    assert asked(worker, STORE, **{**AT, "worker": 9}, deed="count")["state"] == "broken"


BIG = b64encode(bytes(LARGEST_VALUE + 1)).decode()
WRONG = {
    "a field too many": (WATCH, {**AT, "patience": 3}, "patience"),
    "no worker": (WATCH, {"generation": 0, "turn": 1}, "worker"),
    "before the first": (WATCH, {**AT, "worker": -1}, "worker"),
    "beyond counting": (WATCH, {**AT, "turn": 2**40}, "turn"),
    "an unknown state": (WATCH, {**AT, "state": "asleep"}, "state"),
    "an absurd start": (WATCH, {**AT, "start_s": -1}, "start_s"),
    "a negative wait": (ARRIVE, {"worker": 0, **HERE, "wait_s": -1}, "wait_s"),
    "no host": (ARRIVE, {"worker": 0, "port": 1}, "host"),
    "no port": (ARRIVE, {"worker": 0, "host": "h", "port": 70000}, "port"),
    "an unknown deed": (STORE, {**AT, "deed": "steal"}, "deed"),
    "no key": (STORE, {**AT, "deed": "add"}, "keys"),
    "a long key": (STORE, {**AT, "deed": "get", "keys": ["k" * (LONGEST_KEY + 1)]}, "keys"),
    "many keys": (STORE, {**AT, "deed": "check", "keys": ["k"] * 5000}, "keys"),
    "no value": (STORE, {**AT, "deed": "set", "keys": ["k"]}, "values"),
    "no base64": (STORE, {**AT, "deed": "set", "keys": ["k"], "values": ["?"]}, "values"),
    "a huge sum": (STORE, {**AT, "deed": "add", "keys": ["k"], "amount": 2**70}, "amount"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_invalid_requests_are_rejected(worker: httpx2.Client, kind: str) -> None:
    both_meet(worker)
    path, body, field = WRONG[kind]
    answer = worker.post(path, json=body)
    assert (answer.status_code, answer.json()["details"]["field"]) == (422, field), answer.text


def test_value_that_is_too_large_is_rejected(worker: httpx2.Client) -> None:
    body = {**AT, "deed": "set", "keys": ["k"], "values": [BIG]}
    answer = worker.post(STORE, json=body)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


meetings = described.include(path=[ARRIVE, WATCH, STORE])


@meetings.parametrize()
@some
def test_any_request_is_answered(case: schemathesis.Case, worker: httpx2.Client) -> None:
    if isinstance(case.body, dict) and case.body.get("wait_s"):
        case.body["wait_s"] = 0
    case.validate_response(worker.send(prepared(case, worker)), checks=CHECKS)
