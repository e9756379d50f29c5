"""JSON of requests, with and without default values."""

import json

import pytest

from rota.core.model.job import JobId
from rota.daemon.launch.programs import SubmittedProgram, pack, unpack
from rota.store.records import Submission
from rota.wire.codec import dump, dump_brief, load
from rota.wire.jobs import JobRequest

PLAIN = JobRequest(["true"])
FULL = JobRequest(
    ["python", "train.py"],
    name="n",
    cpus=2.5,
    epochs=0.0,
    umask=0,
    env={"A": ""},
    mounts=["/a:/b"],
    retry_on=[1],
    hold=True,
)


def test_default_values_are_omitted() -> None:
    assert json.loads(dump_brief([PLAIN])) == [{"command": ["true"]}]
    assert json.loads(dump(PLAIN))["mode"] == "fixed"


@pytest.mark.parametrize("request_", [PLAIN, FULL, JobRequest([])])
def test_both_forms_load_the_same_value(request_: JobRequest) -> None:
    for form in (dump, dump_brief):
        assert load(JobRequest, json.loads(form(request_))) == request_


def test_zero_differs_from_none() -> None:
    given = json.loads(dump_brief(FULL))
    assert (given["epochs"], given["umask"]) == (0.0, 0)


def test_field_without_a_default_is_always_written() -> None:
    assert dump_brief(JobRequest([])) == '{"command":[]}'


def test_nan_is_rejected() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_brief(JobRequest(["true"], cpus=float("nan")))


def test_stored_program_omits_defaults_and_old_ones_load() -> None:
    saved = SubmittedProgram(FULL, array_index=0, fingerprint="f")
    for text in (pack(saved), dump(saved)):
        assert unpack(Submission(JobId("j"), "ada", 1000, text)) == saved
    assert pack(SubmittedProgram(PLAIN)) == '{"request":{"command":["true"]}}'
