"""`--json`: one job object in every command, and errors as objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.wire.job_changes import ChangedJobs, JobProblem, JobSelection
from rota.wire.jobs import JobRequest
from tests.golden.fake_client import FakeClient
from tests.unit.cli.conftest import Rota


class Picky(FakeClient):
    def change_jobs(self, action: str, selection: JobSelection) -> ChangedJobs:
        if selection.jobs == ["missing"]:
            problem = JobProblem("missing", "not_found", "no job 'missing'", "look at 'rota list'")
            return ChangedJobs([], [problem])
        return super().change_jobs(action, selection)


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.client.Client", Picky)


def test_every_command_prints_the_same_job_object(rota: Rota):
    def found(*arguments: str) -> Any:
        return json.loads(rota(*arguments).out)

    listed = set(found("list", "--json")[0])
    assert {"id", "state", "reason", "age_s"} <= listed
    assert set(found("cancel", "bert", "--json")[0]) == listed
    assert set(found("wait", "bert", "--json")[0]) == listed
    assert set(found("resize", "bert", "2", "--json")) == listed
    assert set(found("submit", "--json", "true")) == listed
    assert set(found("submit", "--wait", "--json", "true")) == listed
    assert set(found("show", "bert", "--json")) >= listed | {"request", "attempts"}


def test_several_jobs_are_a_list_of_objects(rota: Rota, monkeypatch: pytest.MonkeyPatch):
    def two(_: FakeClient, jobs: list[JobRequest]) -> list[str]:
        return [f"{jobs[0].name}1q1h0000", "1q1h0001"]

    monkeypatch.setattr(Picky, "submit_many", two)
    assert len(json.loads(rota("submit", "--json", "--array", "2", "true").out)) == 2


def test_waiting_prints_the_final_object_only(rota: Rota):
    result = rota("submit", "--wait", "--json", "true")
    assert json.loads(result.out)["state"] == "succeeded"


def test_following_prints_lines_with_a_type(rota: Rota):
    lines = rota("submit", "--follow", "--json", "true").out.splitlines()
    types = [json.loads(line)["type"] for line in lines]
    assert (types[0], types[-1], set(types)) == ("job", "job", {"job", "log"})


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (
            ["cancel", "missing", "--json"],
            2,
            {
                "code": "not_found",
                "message": "no job 'missing'",
                "hint": "look at 'rota list'",
            },
        ),
        (
            ["list", "--json", "--state", "x"],
            2,
            {"code": "bad_request", "message": "unknown state 'x'"},
        ),
        (
            ["list", "--json", "--nonsense"],
            2,
            {"code": "bad_request", "message": "no such option: --nonsense"},
        ),
    ],
)
def test_errors_are_objects(rota: Rota, arguments: list[str], code: int, error: dict[str, str]):
    result = rota(*arguments)
    found = json.loads(result.err)
    assert (result.code, set(found)) == (code, {"code", "message", "hint"})
    assert {**found, **error} == found


def test_json_of_the_jobs_command_is_not_that_of_rota(rota: Rota):
    result = rota("submit", "--state", "x", "tool", "--json")
    assert result.err.startswith("rota: no such option: --state")
