"""Commands on the name of an array."""

import json
from typing import Any

import pytest

from rota.client.http import AnswerError
from rota.wire.jobs import JobList, JobView
from tests.golden.fake_client import RUNNING, FakeClient
from tests.unit.cli.conftest import Rota


def member(number: int, *, moment: float, state: str = "running") -> JobView:
    values = {name: getattr(RUNNING, name) for name in RUNNING.__slots__}
    own = {"id": f"j{moment:g}-{number}", "name": f"sweep[{number}]", "state": state}
    return JobView(**{**values, **own, "submitted_s": moment})


NEW = [member(2, moment=9), member(1, moment=9, state="succeeded"), member(0, moment=9)]
OLD = [member(3, moment=5), member(0, moment=5)]


class WithArray(FakeClient):
    """Knows the array `sweep` in two versions, on small pages."""

    done: list[str]

    def jobs(self, **asked: Any) -> JobList:
        assert (asked["user"], asked["word"]) == ("user-1", "sweep[")
        found, start = [*NEW, *OLD], asked["before"] or 0
        return JobList(found[start : start + 2], start + 2 if start + 2 < len(found) else None)

    def show(self, job: str) -> Any:
        self._refuse(job)
        return super().show(job)

    def cancel(self, job: str) -> JobView:
        self._refuse(job)
        WithArray.done.append(job)
        return next((each for each in NEW if each.id == job), RUNNING)

    hold = release = cancel

    def wait(self, job: str) -> JobView:
        return self.cancel(job)

    def _refuse(self, job: str) -> None:
        if job == "sweep":
            raise AnswerError("array", "'sweep' is an array", "name one of its jobs")


@pytest.fixture(autouse=True)
def daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    WithArray.done = []
    monkeypatch.setattr("rota.client.Client", WithArray)


@pytest.mark.parametrize("verb", ["cancel", "hold", "release"])
def test_action_on_an_array_applies_to_its_unfinished_jobs(rota: Rota, verb: str) -> None:
    result = rota(verb, "first", "sweep", "last")
    assert (result.code, result.err) == (0, "")
    assert WithArray.done == ["first", "j9-0", "j9-2", "last"]


def test_show_lists_all_jobs_of_an_array(rota: Rota) -> None:
    found = json.loads(rota("show", "sweep", "--json").out)
    assert [each["name"] for each in found] == ["sweep[0]", "sweep[1]", "sweep[2]"]
    assert "sweep[1]" in rota("show", "sweep").out


def test_wait_waits_for_all_jobs_of_an_array(rota: Rota) -> None:
    result = rota("wait", "sweep", "--json")
    assert WithArray.done == ["j9-0", "j9-1", "j9-2"]
    assert [each["id"] for each in json.loads(result.out)] == WithArray.done
