"""Concurrent requests: repeated submits create one job, and every request is answered."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from tests.integration.api.daemon_process import ANNA, BERT, ApiDaemon, submit
from tests.support.seed_counts import count

HELD = {"command": ["true"], "hold": True}
ARRAY = {**HELD, "array": "5"}


def together(n_threads: int, work: Callable[[int], httpx2.Response]) -> list[httpx2.Response]:
    gate = threading.Barrier(n_threads)

    def one(number: int) -> httpx2.Response:
        gate.wait()
        return work(number)

    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(one, range(n_threads)))


def with_key(client: httpx2.Client, key: str, body: object) -> httpx2.Response:
    return client.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})


@pytest.mark.parametrize("body", [HELD, ARRAY], ids=["a job", "an array"])
def test_concurrent_submits_with_one_key_create_one_job(daemon: ApiDaemon, body: object) -> None:
    before = daemon.n_jobs()
    key = f"same-{before}"
    answers = together(20, lambda _: with_key(daemon.admin, key, body))
    ids = {tuple(answer.json()["ids"]) for answer in answers}
    assert {answer.status_code for answer in answers} == {201}
    assert len(ids) == 1
    assert daemon.n_jobs() == before + len(ids.pop())
    assert with_key(daemon.admin, key, body).json() == answers[0].json()


def test_each_user_has_separate_keys(daemon: ApiDaemon) -> None:
    with daemon.person(ANNA) as anna, daemon.person(BERT) as bert:
        first, second = with_key(anna, "shared", HELD), with_key(bert, "shared", HELD)
    assert first.json() != second.json()


def test_key_with_another_body_is_rejected(daemon: ApiDaemon) -> None:
    first = with_key(daemon.admin, "reused", HELD)
    before = daemon.n_jobs()
    for other in ({**HELD, "name": "other"}, ARRAY):
        answer = with_key(daemon.admin, "reused", other)
        assert (answer.status_code, answer.json()["code"]) == (409, "key_reused")
    assert daemon.n_jobs() == before
    assert with_key(daemon.admin, "reused", HELD).json() == first.json()


def test_concurrent_submits_with_one_key_and_other_bodies_are_rejected(daemon: ApiDaemon) -> None:
    bodies = [HELD, {**HELD, "name": "other"}]
    answers = together(10, lambda number: with_key(daemon.admin, "raced", bodies[number % 2]))
    made = {answer.text for answer in answers if answer.status_code == 201}
    assert len(made) == 1
    assert {answer.status_code for answer in answers} == {201, 409}


@pytest.mark.parametrize("key", ["a/1", "b\\n1", "é1", "a b1", "%0a", "x" * 200])
def test_keys_that_look_like_keys_of_arrays_are_independent(daemon: ApiDaemon, key: str) -> None:
    """A key never matches a job of another submit."""
    stem = key.rpartition("/")[0] or key[:-1]
    headers = {b"Idempotency-Key": key.encode("latin-1")}
    single = daemon.admin.post("/v1/jobs", json=HELD, headers=headers)
    array = daemon.admin.post(
        "/v1/jobs", json=ARRAY, headers={b"Idempotency-Key": stem.encode("latin-1")}
    )
    assert (single.status_code, array.status_code) == (201, 201)
    assert single.json()["ids"][0] not in array.json()["ids"]
    assert daemon.is_well()


def again(client: httpx2.Client, word: str, key: str) -> httpx2.Response:
    return client.post(f"/v1/jobs/{word}/resubmit", headers={"Idempotency-Key": key})


def test_concurrent_resubmits_with_one_key_create_one_job(daemon: ApiDaemon) -> None:
    name = f"again-{daemon.n_jobs()}"
    first = daemon.admin.post("/v1/jobs", json={**HELD, "name": name}).json()["ids"][0]
    daemon.admin.post(f"/v1/jobs/{first}/cancel")
    before = daemon.n_jobs()
    answers = together(10, lambda _: again(daemon.admin, name, name))
    made = {answer.text for answer in answers}
    assert {answer.status_code for answer in answers} == {201}
    assert len(made) == 1
    # The name now means the new job, and the key belongs to a resubmit of the old one.
    assert again(daemon.admin, name, name).text in made
    assert daemon.n_jobs() == before + 1
    for other in (again(daemon.admin, first, name), with_key(daemon.admin, name, HELD)):
        assert (other.status_code, other.json()["code"]) == (409, "key_reused")
    assert again(daemon.admin, name, "").text not in made


def test_key_does_not_allow_a_resubmit_of_another_users_job(daemon: ApiDaemon) -> None:
    with daemon.person(ANNA) as anna, daemon.person(BERT) as bert:
        job = submit(anna, hold=True)
        assert again(anna, job, "mine").status_code == 201
        assert again(bert, job, "mine").status_code == 403
    with daemon.person(ANNA, "read_only") as reader:
        assert again(reader, job, "mine").status_code == 403


def test_batch_with_equal_and_different_jobs_is_accepted(daemon: ApiDaemon) -> None:
    plain, named = {**HELD, "env": {"A": "1"}}, {**HELD, "name": "b", "env": {"A": "2"}}
    array = {**HELD, "name": "c", "array": "2"}
    body = {"jobs": [plain, plain, named, array, array, plain]}
    headers = {"Idempotency-Key": "alike"}
    answer = daemon.admin.post("/v1/jobs/batch", json=body, headers=headers)
    found = [daemon.admin.get(f"/v1/jobs/{each}").json() for each in answer.json()["ids"]]
    names = ["true", "true", "b", "c[0]", "c[1]", "c[0]", "c[1]", "true"]
    assert [each["job"]["name"] for each in found] == names
    assert [each["array_index"] for each in found] == [None, None, None, 0, 1, 0, 1, None]
    values = ["1", "1", "2", None, None, None, None, "1"]
    assert [each["request"]["env"].get("A") for each in found] == values
    again = daemon.admin.post("/v1/jobs/batch", json=body, headers=headers)
    assert again.json() == answer.json()


def test_invalid_job_among_many_equal_ones_is_rejected(daemon: ApiDaemon) -> None:
    before = daemon.n_jobs()
    wrong = {**HELD, "env": {"ROTA_URL": "x"}}
    answer = daemon.admin.post("/v1/jobs/batch", json={"jobs": [HELD, HELD, wrong, wrong]})
    assert (answer.status_code, answer.json()["details"]) == (422, {"field": "env"})
    assert daemon.n_jobs() == before


def test_key_that_is_too_long_is_rejected(daemon: ApiDaemon) -> None:
    answer = with_key(daemon.admin, "x" * 201, HELD)
    assert (answer.status_code, answer.json()["details"]) == (422, {"field": "Idempotency-Key"})


@pytest.mark.parametrize("number", range(count(50)))
def test_job_can_be_cancelled_while_it_starts(daemon: ApiDaemon, number: int) -> None:
    with daemon.person(ANNA) as anna:
        job = submit(anna, gpus="1", name=f"short-{number}")
        answers = together(3, lambda _: anna.post(f"/v1/jobs/{job}/cancel"))
    assert 200 in {answer.status_code for answer in answers}
    assert {answer.status_code for answer in answers} <= {200, 400}
    assert daemon.reaches(job, "cancelled", "failed", "succeeded") == "cancelled"


def test_concurrent_submits_and_lists_are_answered(daemon: ApiDaemon) -> None:
    before = daemon.n_jobs()
    n_each = 10
    pool = [daemon.by_socket() for _ in range(20)]

    def work(number: int) -> httpx2.Response:
        client = pool[number % 20]
        for _ in range(n_each - 1):
            assert client.get("/v1/jobs", params={"limit": 50}).status_code == 200
            assert client.post("/v1/jobs", json=HELD).status_code == 201
        return client.post("/v1/jobs", json=HELD)

    answers = together(20, work)
    assert {answer.status_code for answer in answers} == {201}
    assert daemon.n_jobs() == before + 20 * n_each
    for client in pool:
        client.close()
