"""Requests as JSON, with their defaults and without."""

import json

import pytest

from rota.daemon.programs import Saved, pack, unpack
from rota.wire.jobs import JobRequest
from rota.wire.json import dump, dump_brief, load

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


def test_what_has_its_default_is_left_out() -> None:
    assert json.loads(dump_brief([PLAIN])) == [{"command": ["true"]}]
    assert json.loads(dump(PLAIN))["mode"] == "fixed"


@pytest.mark.parametrize("request_", [PLAIN, FULL, JobRequest([])])
def test_both_forms_are_read_as_the_same(request_: JobRequest) -> None:
    for form in (dump, dump_brief):
        assert load(JobRequest, json.loads(form(request_))) == request_


def test_zero_is_not_the_same_as_nothing() -> None:
    given = json.loads(dump_brief(FULL))
    assert (given["epochs"], given["umask"]) == (0.0, 0)


def test_a_field_without_a_default_is_there_even_if_it_is_empty() -> None:
    assert dump_brief(JobRequest([])) == '{"command":[]}'


def test_what_is_not_a_number_is_not_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_brief(JobRequest(["true"], cpus=float("nan")))


def test_a_program_is_kept_without_its_defaults_and_older_ones_are_read() -> None:
    saved = Saved(FULL, array_index=0, fingerprint="f")
    assert unpack(pack(saved)) == saved
    assert unpack(dump(saved)) == saved
    assert pack(Saved(PLAIN)) == '{"request":{"command":["true"]}}'
