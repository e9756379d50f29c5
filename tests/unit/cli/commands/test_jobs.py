"""Commands on several jobs and on the name of an array."""

import json
from typing import Any

import pytest

from rota.client.http import AnswerError
from rota.wire.job_changes import ChangedJobs, JobProblem, JobSelection
from rota.wire.jobs import JobView
from tests.golden.fake_client import RUNNING, FakeClient
from tests.unit.cli.conftest import Rota


def member(number: int, *, moment: float, state: str = "running") -> JobView:
    values = {name: getattr(RUNNING, name) for name in RUNNING.__slots__}
    own = {"id": f"j{moment:g}-{number}", "name": f"sweep[{number}]", "state": state}
    return JobView(**{**values, **own, "submitted_s": moment})


MEMBERS = [member(0, moment=9), member(1, moment=9, state="succeeded"), member(2, moment=9)]


class WithArray(FakeClient):
    """Knows the array `sweep`, and the job `j9-0` also by a part of its id."""

    done: list[str]
    asked: list[JobSelection]

    def show(self, job: str) -> Any:
        if job == "sweep":
            raise AnswerError("array", "'sweep' is an array", "name one of its jobs")
        return super().show(job)

    def named(self, word: str) -> list[JobView]:
        if word == "wrong":
            raise AnswerError("not_found", "no job 'wrong'")
        return MEMBERS if word == "sweep" else [member(7, moment=7)]

    def change_jobs(self, action: str, selection: JobSelection) -> ChangedJobs:
        assert action in ("cancel", "hold", "release")
        WithArray.asked.append(selection)
        if "j9" in selection.jobs and not selection.partial:
            raise AnswerError("partial_id", "'j9' is only the beginning", "--yes", field="j9-0")
        if selection.jobs == ["wrong"]:
            return ChangedJobs([], [JobProblem("wrong", "not_found", "no job 'wrong'")])
        return ChangedJobs(MEMBERS[:1], n_ended=1 if "sweep" in selection.jobs else 0)

    def wait(self, job: str) -> JobView:
        if job == "sweep":
            self.show(job)
        WithArray.done.append(job)
        return next((each for each in MEMBERS if each.id == job), RUNNING)


@pytest.fixture(autouse=True)
def daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    WithArray.done, WithArray.asked = [], []
    monkeypatch.setattr("rota.client.Client", WithArray)


@pytest.mark.parametrize("verb", ["cancel", "hold", "release"])
def test_all_jobs_of_a_command_are_one_request(rota: Rota, verb: str) -> None:
    result = rota(verb, "first", "sweep", "last")
    assert (result.code, result.err) == (0, "rota: 1 job had ended before\n")
    assert WithArray.asked == [JobSelection(jobs=["first", "sweep", "last"])]


def test_part_of_an_id_needs_yes_without_a_terminal(rota: Rota) -> None:
    result = rota("cancel", "j9")
    assert result.code == 2
    assert "not confirmed" in result.err
    assert rota("cancel", "j9", "--yes").code == 0
    assert WithArray.asked[-1] == JobSelection(jobs=["j9"], partial=True)


def test_confirmed_part_of_an_id_is_sent_as_the_whole_id(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.cli.job_changes._confirm", lambda _: None)
    assert rota("cancel", "j9", "other").code == 0
    assert WithArray.asked[-1] == JobSelection(jobs=["j9-0", "other"])


def test_filter_is_counted_first_and_then_sent_as_ids(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []
    monkeypatch.setattr("rota.cli.job_changes._confirm", questions.append)
    assert rota("cancel", "--name", "sweep*").code == 0
    assert questions == ["cancel 1 job of user-1 (1 running)"]
    assert WithArray.asked == [
        JobSelection(name="sweep*", dry_run=True),
        JobSelection(jobs=["j9-0"]),
    ]


def test_word_without_a_job_is_reported(rota: Rota) -> None:
    result = rota("hold", "wrong")
    assert (result.code, result.err) == (2, "rota: no job 'wrong'\n")


def test_show_lists_all_jobs_of_an_array(rota: Rota) -> None:
    found = json.loads(rota("show", "sweep", "--json").out)
    assert [each["name"] for each in found] == ["sweep[0]", "sweep[1]", "sweep[2]"]
    assert "sweep[1]" in rota("show", "sweep").out


def test_wait_waits_for_all_jobs_of_an_array(rota: Rota) -> None:
    result = rota("wait", "sweep", "--json")
    assert WithArray.done == ["j9-0", "j9-1", "j9-2"]
    assert [each["id"] for each in json.loads(result.out)] == WithArray.done


def test_a_wrong_name_ends_a_wait_before_it_begins(rota: Rota) -> None:
    result = rota("wait", "first", "wrong")
    assert (result.code, result.err, WithArray.done) == (2, "rota: no job 'wrong'\n", [])


def test_a_job_that_is_named_twice_is_waited_for_once(rota: Rota) -> None:
    rota("wait", "first", "last", "sweep")
    assert WithArray.done == ["j7-7", "j9-0", "j9-1", "j9-2"]


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_an_error_of_a_later_copy_does_not_hide_the_earlier_ones(
    rota: Rota, monkeypatch: pytest.MonkeyPatch, words: list[str]
):
    class Partial(FakeClient):
        def resubmit_all(self, job: str) -> list[str]:
            if job == "missing":
                raise AnswerError("not_found", "no job 'missing'")
            return super().resubmit_all(job)

    monkeypatch.setattr("rota.client.Client", Partial)
    result = rota("resubmit", "bert", "missing", *words)
    assert "no job 'missing'" in result.err
    assert result.code == 2
    assert ('"id": "1q1ghcmf"' if words else "1q1h0000\n") in result.out
