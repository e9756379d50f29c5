"""What the spec of a TrainingJob asks for."""

from dataclasses import replace
from typing import Any

import pytest

from rota.core.events import JobSubmitted
from rota.core.life import submitted
from rota.core.model import Job, JobId
from rota.daemon.asked_by_object import Edits, asker_of, edits_of, request_of
from rota.daemon.fields import RefusedError
from rota.wire.jobs import JobRequest
from tests.builders import job

KNOWN: Job = submitted(JobSubmitted(JobId("a"), job("a", gpus="1..4")), 0.0, known=None)
ACCEPTED = JobRequest(command=["p"], name="a", gpus="1..4")


def edits(spec: dict[str, Any]) -> Edits:
    asked = replace(request_of(spec), name="a", gpus="1..4")
    return edits_of(spec, KNOWN, accepted=ACCEPTED, asked=asked)


def test_numbers_are_text_where_people_write_them() -> None:
    found = request_of({"command": ["p"], "gpus": 2, "cpus": 3, "env": {"A": "1"}, "workers": 4})
    assert found == JobRequest(command=["p"], gpus="2", cpus=3.0, env={"A": "1"})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (None, "spec: there is none"),
        ({}, "command: there is nothing to run"),
        ({"command": "p"}, "command: 'p' is not a list of texts"),
        ({"command": ["p"], "gpuss": 1}, "gpuss: there is no such field; did you mean 'gpus'?"),
        ({"command": ["p"], "priority": True}, "priority: 'True' is not a whole number"),
        ({"command": ["p"], "env": {"A": 1}}, "env: .* is not a table of texts"),
        ({"command": ["p"], "hold": "no"}, "hold: 'no' is not true or false"),
        ({"command": ["p"], "array": "0-9"}, "array: one object is one job"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_field(spec: Any, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        request_of(spec)


@pytest.mark.parametrize(
    ("meta", "who"),
    [
        ({}, "team"),
        ({"labels": {"rota.dev/user": "ann"}}, "ann"),
        ({"annotations": {"rota.dev/user": "ann@lab.example"}}, "ann@lab.example"),
        ({"labels": None, "annotations": None}, "team"),
    ],
)
def test_who_asks(meta: dict[str, Any], who: str) -> None:
    assert asker_of(meta, default="team") == who


@pytest.mark.parametrize("name", ["../../other", "a/b", "-a", "ann\nbob", "x" * 81, "{job}"])
def test_who_has_no_name_of_a_person(name: str) -> None:
    with pytest.raises(RefusedError, match="nobody's name"):
        asker_of({"annotations": {"rota.dev/user": name}}, default="team")


def test_an_edit_asks_for_what_is_not_so_already() -> None:
    spec = {"command": ["p"], "priority": 5, "workers": 3, "hold": True}
    assert edits(spec) == Edits(workers=3, priority=5, hold=True)


def test_what_is_not_said_is_left_as_it_is() -> None:
    assert edits({"command": ["p"]}) == Edits()


def test_what_runs_cannot_be_changed() -> None:
    spec = {"command": ["other"], "image": "new", "priority": 1}
    assert edits(spec) == Edits(priority=1, refused=("command", "image"))


def test_a_priority_has_bounds() -> None:
    with pytest.raises(RefusedError, match="out of bounds"):
        edits({"command": ["p"], "priority": 10**9})
