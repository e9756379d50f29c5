"""`rota projects divide`, line by line."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import Rota

CASE = {
    "gpus": 8,
    "projects": [
        {"name": "a", "quota": 3, "weight": 3, "limit": None, "wants": 9, "priority": 0},
        {"name": "b", "quota": 1, "weight": 1, "limit": None, "wants": 9, "created_s": 0},
    ],
}


def line(**changes: object) -> bytes:
    """The case with a changed first project."""
    first, second = CASE["projects"]
    return json.dumps({**CASE, "projects": [{**first, **changes}, second]}).encode() + b"\n"


def test_divide_answers_every_case_in_order(rota: Rota):
    stdin = line() + b"\n" + line(limit=2.5) + line(wants=0)
    result = rota("projects", "divide", stdin=stdin)
    assert result.code == 0
    assert result.out.splitlines() == [
        '{"a": 6, "b": 2}',
        '{"a": 2.5, "b": 5.5}',
        '{"a": 0, "b": 8}',
    ]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"quota": -1}, "field 'projects[0].quota' must be a finite number from 0 to 1e+09"),
        ({"weight": "2"}, "field 'projects[0].weight' must be a finite number from 0 to 1e+09"),
        ({"limit": True}, "field 'projects[0].limit' must be a finite number from 0 to 1e+09"),
        ({"wants": 1e300}, "field 'projects[0].wants' must be a finite number from 0 to 1e+09"),
        ({"priority": 0.5}, "field 'projects[0].priority' must be a whole number, not 0.5"),
        ({"name": "b"}, "field 'projects[1].name': two projects have the name 'b'"),
        ({"name": ""}, "field 'projects[0].name' must be a name"),
    ],
)
def test_divide_stops_at_a_bad_line(rota: Rota, changes: dict[str, object], complaint: str):
    result = rota("projects", "divide", stdin=line() + line(**changes) + line())
    assert result.code == 2
    assert result.out == '{"a": 6, "b": 2}\n'
    assert result.err.startswith(f"rota: line 2, {complaint}")


@pytest.mark.parametrize(
    ("case", "complaint"),
    [
        (b"[]", "line 1: a case must be an object"),
        (b'{"projects": []}', "line 1, field 'gpus' is missing"),
        (b'{"gpus": 8, "projects": [{"name": "a"}]}', "line 1, field 'projects[0].wants' is miss"),
        (b'{"gpus": 8, "project": []}', "line 1: a case has no field 'project', did you mean"),
        (b'{"gpus": Infinity, "projects": []}', "line 1: not JSON: Infinity is not a number"),
    ],
)
def test_divide_names_what_is_wrong_with_a_case(rota: Rota, case: bytes, complaint: str):
    result = rota("projects", "divide", stdin=case)
    assert result.code == 2
    assert result.err.startswith(f"rota: {complaint}")
