"""The input of `rota policy decide`: defaults, order, and every invalid field."""

import json
from typing import Any

import pytest

from rota.errors import UserError
from rota.policies.decide_case import decide_case
from rota.policies.registry import parse
from tests.unit.policies.policy_cases import Case


def one(**changes: Any) -> Case:
    return {"gpus": 4, "jobs": [{"name": "a", "min": 1, "max": 4} | changes]}


def decide(policy: str, case: object) -> dict[str, int]:
    return decide_case(parse(policy), case)


def test_the_documented_case() -> None:
    line = (
        '{"gpus": 8, "jobs": [{"name": "a", "min": 1, "max": 4, "requested": 2, '
        '"priority_queue": 0, "submitted_s": 0, "first_started_s": 5, "remaining_s": 4000, '
        '"speedup": [0, 1, 1.842, 2.692, 3.5]}]}'
    )
    assert decide("tiresias", json.loads(line)) == {"a": 2}


def test_answers_come_in_the_order_of_the_case() -> None:
    jobs = [
        {"name": name, "min": 1, "max": 1, "submitted_s": at} for name, at in [("z", 2), ("a", 1)]
    ]
    assert list(decide("fifo", {"gpus": 1, "jobs": jobs}).items()) == [("z", 0), ("a", 1)]


def test_equal_submissions_go_by_name_whatever_their_order() -> None:
    jobs = [{"name": name, "min": 1, "max": 1, "submitted_s": 0} for name in "cab"]
    assert decide("fifo", {"gpus": 1, "jobs": jobs}) == {"c": 0, "a": 1, "b": 0}


def test_without_submission_times_the_place_counts() -> None:
    jobs = [{"name": name, "min": 1, "max": 1} for name in "cab"]
    assert decide("fifo", {"gpus": 1, "jobs": jobs}) == {"c": 1, "a": 0, "b": 0}


def test_the_request_is_the_minimum_unless_given() -> None:
    assert decide("tiresias", one(min=2)) == {"a": 2}


@pytest.mark.parametrize("unknown", [{}, {"remaining_s": None}])
def test_an_unknown_length_comes_last(unknown: Case) -> None:
    jobs = [{"name": "a", "min": 1, "max": 1} | unknown]
    jobs.append({"name": "b", "min": 1, "max": 1, "remaining_s": 9e9})
    assert decide("srjf", {"gpus": 1, "jobs": jobs}) == {"a": 0, "b": 1}


@pytest.mark.parametrize("table", [[0], [0, 0, 2], [0, 0.7], [0, 3e-7, 1]])
def test_the_time_left_does_not_depend_on_the_table(table: list[float]) -> None:
    jobs = [{"name": "a", "min": 1, "max": 1, "remaining_s": 0.3}]
    jobs.append({"name": "b", "min": 1, "max": 1, "remaining_s": 0.3, "speedup": table})
    jobs.append({"name": "c", "min": 1, "max": 1, "remaining_s": 0.2, "speedup": table})
    assert decide("srjf", {"gpus": 2, "jobs": jobs}) == {"a": 1, "b": 0, "c": 1}


def test_a_job_may_want_more_than_there_is() -> None:
    assert decide("ffdl", one(max=100_000)) == {"a": 4}
    assert decide("elastic-fifo", one(max=100_000)) == {"a": 4}
    assert decide("afs-l", one(min=100_000, max=100_000)) == {"a": 0}


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ([], "a case must be an object"),
        (None, "a case must be an object, not None"),
        ({}, "field 'gpus' is missing"),
        ({"gpus": 4}, "field 'jobs' is missing"),
        ({"gpus": -1, "jobs": []}, "field 'gpus' must be a whole number from 0 to 100000, not -1"),
        ({"gpus": 1.5, "jobs": []}, "field 'gpus' must be a whole number"),
        ({"gpus": True, "jobs": []}, "field 'gpus' must be a whole number"),
        ({"gpus": 10**7, "jobs": []}, "field 'gpus' must be a whole number"),
        ({"gpus": 4, "jobs": {}}, "field 'jobs' must be a list"),
        ({"gpus": 4, "jobs": [3]}, "jobs[0] must be an object, not 3"),
        ({"gpus": 4, "job": []}, "a case has no field 'job', did you mean 'jobs'?"),
        ({"gpus": 4, "jobs": [{"name": "a", "min": 1}]}, "field 'jobs[0].max' is missing"),
        ({"gpus": 4, "jobs": one()["jobs"] * 2}, "'jobs[1].name': two jobs have the name 'a'"),
        (one(name=""), "'jobs[0].name' must be a name"),
        (one(name=7), "'jobs[0].name' must be a name, not 7"),
        (one(min=0), "'jobs[0].min' must be a whole number from 1, not 0"),
        (one(min="1"), "'jobs[0].min' must be a whole number from 1, not '1'"),
        (one(min=5), "'jobs[0].min' is 5, more than max, which is 4"),
        (one(max=None), "'jobs[0].max' must be a whole number from 1 to 100000, not None"),
        (one(requested=5), "'jobs[0].requested' must be a whole number from 1 to 4, not 5"),
        (one(priority_queue=-1), "'jobs[0].priority_queue' must be a whole number from 0"),
        (one(remaining_s=-1), "'jobs[0].remaining_s' must be a finite number from 0, not -1"),
        (one(remaining_s=float("nan")), "'jobs[0].remaining_s' must be a finite number from 0"),
        (one(remaining_s=10**400), "'jobs[0].remaining_s' must be a finite number from 0"),
        (one(submitted_s=None), "'jobs[0].submitted_s' must be a finite number, not None"),
        (one(submitted_s=float("inf")), "'jobs[0].submitted_s' must be a finite number, not inf"),
        (one(first_started_s="now"), "'jobs[0].first_started_s' must be a finite number"),
        (one(speedup=2), "'jobs[0].speedup' must be a list, not 2"),
        (one(speedup=[]), "'jobs[0].speedup' must start with 0"),
        (one(speedup=[1, 2]), "'jobs[0].speedup' must start with 0"),
        (one(speedup=[0, -1]), "'jobs[0].speedup' must be finite numbers from 0, not -1"),
        (one(speedup=[0, None]), "'jobs[0].speedup' must be finite numbers from 0, not None"),
        (one(speedup=[0, float("inf")]), "'jobs[0].speedup' must be finite numbers from 0"),
        (one(sped=[0]), "jobs[0] has no field 'sped', did you mean 'speedup'?; known: name, min"),
    ],
)
def test_bad_input_is_reported(case: object, message: str) -> None:
    with pytest.raises(UserError) as caught:
        decide("fifo", case)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("most", [100_001, 10**18])
def test_a_size_beyond_the_limit_is_rejected(most: int) -> None:
    complaint = f"must be a whole number from 1 to 100000, not {most}"
    with pytest.raises(UserError, match=complaint):
        decide("ffdl", one(max=most, speedup=[0, 1]))
