"""Parsing the spec of a TrainingJob."""

from dataclasses import replace
from typing import Any

import pytest

from rota.core.lifecycle.reducer import new_job
from rota.core.model.events import JobSubmitted
from rota.core.model.job import Job, JobId
from rota.daemon.errors import RefusedError
from rota.operator.spec_parser import SpecEdits, edits_of, job_request_of, user_of
from rota.wire.job_changes import JobEdit
from rota.wire.jobs import JobRequest
from tests.support.builders import Lab, cluster, job

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
    assert edits(spec) == SpecEdits(size=3, edit=JobEdit(priority=5), hold=True)


def test_missing_fields_do_not_change() -> None:
    assert edits({"command": ["p"]}) == SpecEdits()


def test_immutable_fields_are_refused() -> None:
    spec = {"command": ["other"], "image": "new", "priority": 1}
    assert edits(spec) == SpecEdits(edit=JobEdit(priority=1), refused=("command", "image"))


def test_a_spec_that_repeats_what_a_job_has_changes_nothing() -> None:
    """Also if the job got the value by an edit."""
    limited = replace(KNOWN, spec=replace(KNOWN.spec, time_limit_s=7200.0))
    asked = replace(ACCEPTED, time_limit="2h")
    spec = {"command": ["p"], "time_limit": "2h"}
    assert edits_of(spec, limited, accepted=ACCEPTED, asked=asked) == SpecEdits()
    assert edits(spec) == SpecEdits(edit=JobEdit(time_limit="2h"))


def test_fields_that_change_only_in_the_queue_are_refused_while_a_job_runs() -> None:
    spec = {"command": ["p"], "gpu_types": ["A100"], "retries": 2}
    assert edits(spec) == SpecEdits(edit=JobEdit(gpu_types=["A100"], retries=2))
    lab = Lab(cluster("1x4"))
    lab.run(KNOWN.spec)
    asked = replace(job_request_of(spec), name="a", gpus="1..4")
    found = edits_of(spec, lab.job("a"), accepted=ACCEPTED, asked=asked)
    assert found == SpecEdits(edit=JobEdit(retries=2), refused=("gpu_types",))


def test_fields_that_no_spec_can_have_do_not_change() -> None:
    """A job accepted before the field existed reads as `host_network`."""
    accepted, asked = replace(ACCEPTED, host_network=True), ACCEPTED
    assert edits_of({"command": ["p"]}, KNOWN, accepted=accepted, asked=asked) == SpecEdits()


def test_a_size_of_an_earlier_version_counts_workers() -> None:
    """`workers` was the number of processes; a size is the number of GPUs."""
    sized = replace(KNOWN, spec=replace(KNOWN.spec, gpus=2))
    for spec, size in (({"workers": 2}, 4), ({"size": 2}, 2), ({"size": 4, "workers": 1}, 4)):
        assert edits_of(spec, sized, accepted=ACCEPTED, asked=ACCEPTED).size == size
