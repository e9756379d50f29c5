"""Measurements of a job over HTTP: for its owner and administrators only."""

import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from rota.client import Client
from rota.wire.training import HERE, MEASURED
from tests.integration.api.daemon_process import ANNA, BERT, ApiDaemon, eventually, submit
from tests.integration.api.test_training import TELL_TOKEN, heard, token_of

METRIC = "a-secret-metric"


@pytest.fixture(scope="module")
def anna(daemon: ApiDaemon) -> Iterator[httpx2.Client]:
    with daemon.person(ANNA) as client:
        yield client


@pytest.fixture(scope="module")
def job(daemon: ApiDaemon, anna: httpx2.Client) -> str:
    """A job of Anna that has finished two of twenty epochs, of ten seconds each."""
    made = submit(anna, **TELL_TOKEN, name="measured", gpus="1", epochs=20, grace="1s")
    with daemon.by_tcp(token_of(daemon, made)) as worker:
        for number in (1, 2):
            now = time.time()
            heard(
                worker,
                epochs_done=number,
                epochs_total=20,
                epochs_saved=1,
                epochs=[{"at_s": now, "number": number, "seconds": 10.0}],
                steps=[{"at_s": now, "count": 100, "seconds": 10.0, "samples": 3200}],
                metrics={METRIC: 0.5},
                memory_bytes=2**30,
                save_s=0.25,
            )
    return made


def profile(client: httpx2.Client, job: str) -> dict[str, Any]:
    answer = client.get(f"/v1/jobs/{job}/profile")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_profile_contains_the_reported_values(anna: httpx2.Client, job: str) -> None:
    found = profile(anna, job)
    measured = [each for each in found["sizes"] if each["kind"] == MEASURED]
    assert [(each["gpus"], each["origin"], each["count"]) for each in measured] == [(1, HERE, 2)]
    assert measured[0]["epoch_s"] == pytest.approx(10.0)
    assert (found["epochs_done"], found["epochs"], found["metrics"]) == (2, 20, {METRIC: 0.5})
    (worker,) = found["workers"]
    assert (worker["step_s"], worker["samples_per_s"], worker["memory_bytes"]) == (0.1, 320, 2**30)
    assert found["handling"]["save_s"] == 0.25
    eventually(lambda: len(profile(anna, job)["steps"]) > 0)


def test_details_contain_progress_and_finish_time(anna: httpx2.Client, job: str) -> None:
    shown = anna.get(f"/v1/jobs/{job}").json()
    now = time.time()
    assert shown["job"]["progress"] == 0.1
    assert shown["job"]["remaining_s"] == pytest.approx(180, abs=60)
    assert shown["job"]["finish_s"] == pytest.approx(now + shown["job"]["remaining_s"], abs=30)
    assert 0 < shown["job"]["finish_error"] < 1
    assert (shown["epochs_saved"], shown["metrics"]) == (1, {METRIC: 0.5})


def test_only_owner_and_administrator_read_a_profile(
    daemon: ApiDaemon, anna: httpx2.Client, job: str
) -> None:
    assert profile(daemon.admin, job) == profile(anna, job)
    with daemon.person(ANNA, "read_only") as reads:
        assert profile(reads, "measured")["id"] == job
    with daemon.person(BERT) as bert:
        for word in (job, "measured"):
            answer = bert.get(f"/v1/jobs/{word}/profile")
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
            assert METRIC not in answer.text
        shown = bert.get(f"/v1/jobs/{job}")
        assert METRIC not in shown.text
        assert shown.json()["job"]["progress"] == 0.1
    with daemon.by_tcp() as stranger:
        assert stranger.get(f"/v1/jobs/{job}/profile").status_code == 401


def test_client_reads_a_profile(daemon: ApiDaemon, anna: httpx2.Client, job: str) -> None:
    with Client(f"unix://{daemon.socket}") as rota:
        assert rota.profile(job).metrics == profile(anna, job)["metrics"]
        assert rota.show(job).metrics == {METRIC: 0.5}


def test_queued_job_has_a_finish_time_after_the_jobs_before_it(daemon: ApiDaemon) -> None:
    """The forecast is computed in the background and may be ready after the first response."""
    for each in daemon.admin.get("/v1/jobs", params={"limit": 1000}).json()["jobs"]:
        daemon.admin.post(f"/v1/jobs/{each['id']}/cancel")
    first, second = (submit(daemon.admin, name=name, gpus="4", hours=1.0) for name in ("i", "ii"))
    daemon.reaches(first, "running")

    def end(job: str) -> float:
        return daemon.admin.get(f"/v1/jobs/{job}").json()["job"]["finish_s"] or 0.0

    eventually(lambda: end(second) > end(first) > 0)
    assert end(second) - end(first) == pytest.approx(3600, abs=120)
    for each in (second, first):
        daemon.admin.post(f"/v1/jobs/{each}/cancel")
