"""Parsing the spec of a TrainingJob."""

from dataclasses import replace
from typing import Any

import pytest

from rota.core.lifecycle.reducer import new_job
from rota.core.model.events import JobSubmitted
from rota.core.model.job import Job, JobId
from rota.daemon.errors import RefusedError
from rota.operator.spec_parser import SpecEdits, edits_of, job_request_of, user_of
from rota.wire.jobs import JobRequest
from tests.support.builders import job

KNOWN: Job = new_job(JobSubmitted(JobId("a"), job("a", gpus="1..4")), 0.0, known=None)
ACCEPTED = JobRequest(command=["p"], name="a", gpus="1..4")


def edits(spec: dict[str, Any]) -> SpecEdits:
    asked = replace(job_request_of(spec), name="a", gpus="1..4")
    return edits_of(spec, KNOWN, accepted=ACCEPTED, asked=asked)


def test_numbers_are_accepted_in_string_fields() -> None:
    found = job_request_of(
        {"command": ["p"], "gpus": 2, "cpus": 3, "env": {"A": "1"}, "workers": 4}
    )
    assert found == JobRequest(command=["p"], gpus="2", cpus=3.0, env={"A": "1"})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (None, "spec: the spec is missing"),
        ({}, "command: the command is missing"),
        ({"command": "p"}, "command: 'p' is not a list of strings"),
        ({"command": ["p"], "gpuss": 1}, "gpuss: unknown field; did you mean 'gpus'?"),
        ({"command": ["p"], "priority": True}, "priority: 'True' is not an integer"),
        ({"command": ["p"], "env": {"A": 1}}, "env: .* is not a map of strings"),
        ({"command": ["p"], "hold": "no"}, "hold: 'no' is not a boolean"),
        ({"command": ["p"], "array": "0-9"}, "array: .* a TrainingJob is a single job"),
        ({"command": ["p"], "host_network": True}, "host_network: .* networks of their own"),
    ],
)
def test_an_error_names_its_field(spec: Any, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        job_request_of(spec)


@pytest.mark.parametrize(
    ("meta", "who"),
    [
        ({}, "team"),
        ({"labels": {"rota.dev/user": "ann"}}, "ann"),
        ({"annotations": {"rota.dev/user": "ann@lab.example"}}, "ann@lab.example"),
        ({"labels": None, "annotations": None}, "team"),
    ],
)
def test_the_user_of_an_object(meta: dict[str, Any], who: str) -> None:
    assert user_of(meta, default="team") == who


@pytest.mark.parametrize("name", ["../../other", "a/b", "-a", "ann\nbob", "x" * 81, "{job}"])
def test_an_invalid_user_name_is_refused(name: str) -> None:
    with pytest.raises(RefusedError, match="is not a valid user name"):
        user_of({"annotations": {"rota.dev/user": name}}, default="team")


def test_an_edit_has_only_changes() -> None:
    spec = {"command": ["p"], "priority": 5, "size": 3, "hold": True}
    assert edits(spec) == SpecEdits(size=3, priority=5, hold=True)


def test_missing_fields_do_not_change() -> None:
    assert edits({"command": ["p"]}) == SpecEdits()


def test_immutable_fields_are_refused() -> None:
    spec = {"command": ["other"], "image": "new", "priority": 1}
    assert edits(spec) == SpecEdits(priority=1, refused=("command", "image"))


def test_a_priority_has_a_range() -> None:
    with pytest.raises(RefusedError, match="out of range"):
        edits({"command": ["p"], "priority": 10**9})


def test_fields_that_no_spec_can_have_do_not_change() -> None:
    """A job accepted before the field existed reads as `host_network`."""
    accepted, asked = replace(ACCEPTED, host_network=True), ACCEPTED
    assert edits_of({"command": ["p"]}, KNOWN, accepted=accepted, asked=asked) == SpecEdits()


def test_a_size_of_an_earlier_version_counts_workers() -> None:
    """`workers` was the number of processes; a size is the number of GPUs."""
    sized = replace(KNOWN, spec=replace(KNOWN.spec, gpus=2))
    for spec, size in (({"workers": 2}, 4), ({"size": 2}, 2), ({"size": 4, "workers": 1}, 4)):
        assert edits_of(spec, sized, accepted=ACCEPTED, asked=ACCEPTED).size == size
