"""Progress reports of training programs and the orders they get, over HTTP."""

import json
import math
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count as counting
from typing import Any

import httpx2
import pytest
import schemathesis

from rota.daemon.training.report_service import LONGEST_WAIT_S
from rota.daemon.training.stragglers import REPORTS
from rota_trainer.reporting.messages import LONGEST_NAME, PATH
from tests.integration.api.daemon_process import ANNA, BERT, SLEEP, ApiDaemon, eventually, submit
from tests.integration.api.test_schema import CHECKS, described, prepared, some

TELL_TOKEN = {**SLEEP, "command": ["sh", "-c", "echo token $ROTA_TOKEN end; sleep 1000"]}
NOTHING = {"stop": "", "insists_in_s": None, "notes": [], "switch": None, "refused": ""}
numbers = counting(1)


@pytest.fixture(scope="module")
def job(daemon: ApiDaemon) -> str:
    """A job with two workers."""
    return submit(daemon.admin, **TELL_TOKEN, gpus="2", gpus_per_worker=1, epochs=50, grace="1s")


@pytest.fixture(scope="module")
def worker(daemon: ApiDaemon, job: str) -> Iterator[httpx2.Client]:
    with daemon.by_tcp(token_of(daemon, job)) as client:
        yield client


def token_of(daemon: ApiDaemon, job: str) -> str:
    def output() -> str:
        return daemon.admin.get(f"/v1/jobs/{job}/logs").text

    eventually(lambda: " end" in output())
    return output().partition("token ")[2].partition(" end")[0]


def tell(client: httpx2.Client, **fields: Any) -> httpx2.Response:
    body = {"worker": 0, "sequence": next(numbers), "epochs_total": 50, **fields}
    return client.post(PATH, content=json.dumps(body))


def heard(client: httpx2.Client, **fields: Any) -> dict[str, Any]:
    answer = tell(client, **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def shown(daemon: ApiDaemon, job: str) -> dict[str, Any]:
    return daemon.admin.get(f"/v1/jobs/{job}").json()["job"]


@pytest.mark.parametrize("scope", ["user", "read_only"])
def test_user_tokens_cannot_report(daemon: ApiDaemon, job: str, scope: str) -> None:
    with daemon.person(ANNA, scope) as anna:
        answer = tell(anna, job=job)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert tell(daemon.admin).status_code == 403
    with daemon.by_tcp() as stranger:
        assert tell(stranger).status_code == 401


def test_ended_attempt_cannot_report(daemon: ApiDaemon) -> None:
    with daemon.person(BERT) as bert:
        over = submit(bert, **TELL_TOKEN, gpus="0", grace="1s")
        with daemon.by_tcp(token_of(daemon, over)) as client:
            assert heard(client) == NOTHING
            bert.post(f"/v1/jobs/{over}/cancel")
            daemon.reaches(over, "cancelled")
            assert tell(client).status_code == 401


def test_reported_progress_is_shown(daemon: ApiDaemon, job: str, worker: httpx2.Client) -> None:
    now = time.time()
    assert heard(worker, epochs_done=2, epochs=[epoch(now, 2)]) == NOTHING
    assert shown(daemon, job)["epochs_done"] == 2
    assert heard(worker, epochs_done=3.5, epochs=[epoch(now, 3)]) == NOTHING
    assert shown(daemon, job)["epochs_done"] == 3.5
    # Only the worker with the lowest rank represents the job.
    assert heard(worker, worker=1, epochs_done=9, epochs=[epoch(now, 9)]) == NOTHING
    assert shown(daemon, job)["epochs_done"] == 3.5


def test_duplicate_report_counts_once(daemon: ApiDaemon, job: str, worker: httpx2.Client) -> None:
    same = next(numbers)
    heard(worker, sequence=same, epochs_done=4, epochs_saved=4)
    assert shown(daemon, job)["epochs_done"] == 4
    heard(worker, sequence=same, epochs_done=5, epochs_saved=5)
    assert shown(daemon, job)["epochs_done"] == 4


def epoch(at_s: float, number: int, seconds: float = 1.5) -> dict[str, Any]:
    return {"at_s": at_s, "number": number, "seconds": seconds}


NONSENSE = {
    "negative": ({"epochs_saved": -1}, "epochs_saved -1 is not"),
    "not a number": ({"metrics": {"loss": math.nan}}, "metric 'loss' nan is not"),
    "endless": ({"save_s": math.inf}, "save_s inf is not"),
    "more than all": ({"epochs_done": 60}, "epochs_done 60 is more than epochs_total 50"),
    "many metrics": ({"metrics": dict.fromkeys(map(str, range(9000)), 1.0)}, "9000 metrics"),
    "long names": ({"metrics": {"x" * (LONGEST_NAME + 1): 1.0}}, f"up to {LONGEST_NAME}"),
    "absurd times": ({"epochs": [epoch(0.0, 3)]}, "invalid record in 'epochs'"),
    "slow epochs": (
        {"steps": [{"at_s": 0, "count": 1, "seconds": -3}]},
        "invalid record in 'steps'",
    ),
    "no list": ({"steps": 7}, "steps 7 is not a list"),
    "too many": ({"epochs": [epoch(time.time(), 1)] * 70}, "70 records in 'epochs'"),
    "saved what is not done": ({"epochs_saved": 49}, "epochs_saved 49 is more than epochs_done 6"),
    "another worker": ({"worker": 17}, "worker 17 ignored"),
    "text": ({"memory_bytes": "much"}, "memory_bytes 'much' is not"),
    "huge": ({"start_s": 10**300}, "start_s 1000"),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_invalid_values_are_noted_once_and_the_rest_is_used(daemon: ApiDaemon, kind: str) -> None:
    fields, words = NONSENSE[kind]
    own = submit(daemon.admin, **TELL_TOKEN, gpus="0", grace="1s")
    with daemon.by_tcp(token_of(daemon, own)) as client:
        sense = {"epochs_done": 6, "hears": False}
        (note,) = heard(client, **{**sense, **fields})["notes"]
        assert words in note
        assert heard(client, **{**sense, **fields})["notes"] == []
        heard(client, epochs_done=7, epochs_saved=7)
        assert shown(daemon, own)["epochs_done"] == 7
    daemon.admin.post(f"/v1/jobs/{own}/cancel")


def test_decreasing_progress_is_ignored(daemon: ApiDaemon) -> None:
    own = submit(daemon.admin, **TELL_TOKEN, gpus="0", grace="1s")
    with daemon.by_tcp(token_of(daemon, own)) as client:
        heard(client, epochs_done=6, epochs_saved=6)
        (note,) = heard(client, epochs_done=5, epochs_saved=5, metrics={"a": 1})["notes"][:1]
        assert "epochs_done decreased from 6 to 5" in note
        assert shown(daemon, own)["epochs_done"] == 6
    daemon.admin.post(f"/v1/jobs/{own}/cancel")


def test_job_of_unknown_length_is_not_complete(daemon: ApiDaemon) -> None:
    own = submit(daemon.admin, **TELL_TOKEN, gpus="0", grace="1s")
    with daemon.by_tcp(token_of(daemon, own)) as client:
        for done in (1, 2, 3):
            heard(client, epochs_total=None, epochs_done=done, epochs_saved=done)
            found = shown(daemon, own)
            known = (found["epochs_done"], found["epochs"], found["progress"], found["finish_s"])
            assert known == (done, None, None, None)
        daemon.admin.post(f"/v1/jobs/{own}/cancel")
        assert daemon.reaches(own, "cancelled", "succeeded") == "cancelled"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"worker": 0, "worker": 1, "sequence": 1}', 400),
        (b"[" * 100_000, 400),
        (b'"\xff"', 400),
        (b"[]", 422),
        (b"{}", 422),
        (b'{"worker": -1, "sequence": 1}', 422),
        (b'{"worker": true, "sequence": 1}', 422),
        (b'{"worker": 0, "sequence": 1.5}', 422),
        (b'{"worker": 0, "sequence": 1, "x": "' + b"x" * 300_000 + b'"}', 413),
    ],
)
def test_body_that_is_no_report_is_rejected(
    worker: httpx2.Client, body: bytes, status: int
) -> None:
    answer = worker.post(PATH, content=body)
    assert (answer.status_code, bool(answer.json()["message"])) == (status, True)


def test_unknown_field_of_a_report_is_ignored(worker: httpx2.Client) -> None:
    assert heard(worker, version=2, weather="fine") == NOTHING


def test_stop_order_is_sent_to_all_workers_at_once(daemon: ApiDaemon) -> None:
    own = submit(daemon.admin, **TELL_TOKEN, gpus="2", gpus_per_worker=1, grace="1h")
    daemon.reaches(own, "running")
    with daemon.by_tcp(token_of(daemon, own)) as one, daemon.by_tcp(token_of(daemon, own)) as two:
        with ThreadPoolExecutor() as pool:
            # With `hears`, workers get stop requests; both wait much longer than a test may take.
            heard(one, worker=0, hears=True, epochs_done=1)
            waiting = [
                pool.submit(heard, client, worker=number, hears=True, wait_s=1e6, epochs_done=1)
                for number, client in enumerate((one, two))
            ]
            daemon.admin.post(f"/v1/jobs/{own}/hold")
            orders = [each.result() for each in waiting]
        assert [each["stop"] for each in orders] == [orders[0]["stop"]] * 2
        assert "held" in orders[0]["stop"]
        # The response comes at once and not at the end of the wait.
        assert all(3600 - LONGEST_WAIT_S < each["insists_in_s"] <= 3600 for each in orders)
        # A known order is repeated, and ends no wait early.
        again = heard(one, worker=0, epochs_done=1, wait_s=0.05)
        assert again["stop"] == orders[0]["stop"]
    assert daemon.state(own) == "stopping"
    daemon.admin.post(f"/v1/jobs/{own}/cancel")
    daemon.reaches(own, "cancelled")


def test_samples_are_stored(daemon: ApiDaemon, job: str, worker: httpx2.Client) -> None:
    steps = [{"at_s": time.time(), "count": 4, "seconds": 2.0, "samples": 128}]
    pace = {"steps": steps, "metrics": {"loss": 0.5}, "memory_bytes": 2**30}

    def rows() -> list[Any]:
        heard(worker, epochs_done=11, **pace)
        with sqlite3.connect(f"file:{daemon.folder}/rota.db?mode=ro", uri=True) as store:
            found = store.execute(
                "SELECT workers, step_s, samples_per_s, memory_bytes, metrics FROM samples"
                " WHERE job_id = ? AND epochs_done = 11",
                (job,),
            ).fetchall()
        store.close()
        return found

    eventually(lambda: bool(rows()))
    assert rows()[0] == (2, 0.5, 64.0, 2**30, '{"loss":0.5}')


def test_slow_worker_is_named_in_log_and_details(daemon: ApiDaemon) -> None:
    own = submit(daemon.admin, **TELL_TOKEN, gpus="2", gpus_per_worker=1, grace="1s")
    daemon.reaches(own, "running")
    with daemon.by_tcp(token_of(daemon, own)) as client:
        for worker, seconds in [(0, 1.0), (1, 4.0)] * REPORTS:
            steps = [{"at_s": time.time(), "count": 8, "seconds": seconds}]
            heard(client, worker=worker, epochs_done=1, steps=steps)
        slow = daemon.admin.get(f"/v1/jobs/{own}").json()["stragglers"]
        assert [(each["worker"], each["slowness"]) for each in slow] == [(1, 4.0)]
        # The periodic check of workers also writes a note to the log of the job.
        told = ["worker 1 is slow: its steps take 4 times as long as the others'"]
        eventually(lambda: heard(client, worker=0, epochs_done=1)["notes"] == told)
    daemon.admin.post(f"/v1/jobs/{own}/cancel")


reports = described.include(path=PATH)


@reports.parametrize()
@some
def test_any_report_is_answered(case: schemathesis.Case, worker: httpx2.Client) -> None:
    if isinstance(case.body, dict):
        case.body["wait_s"] = 0
    case.validate_response(worker.send(prepared(case, worker)), checks=CHECKS)
