"""Every row of the table of job fields is complete, and its example is valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.cli.app import command_named
from rota.cli.command import parse
from rota.cli.job_file import read
from rota.config.keys import submit_keys
from rota.daemon.jobs.validation import check_shape
from rota.wire.job_request import GROUPS, JobField, JobRequest, job_fields

FIELDS = list(job_fields().values())


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_a_row_is_complete(field: JobField):
    info = field.info
    assert info.group in GROUPS
    assert info.text.endswith(".")
    assert bool(info.metavar) == (bool(info.flags) and field.type != "bool")
    assert info.flags or not info.flag_text


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_an_example_is_a_valid_value(field: JobField, tmp_path: Path):
    (tmp_path / "job.yaml").write_text(f"{field.name}: {field.info.example}\n")
    [values] = read(tmp_path / "job.yaml")
    request = JobRequest(**{"command": ["true"], **values})
    check_shape(request)
    assert getattr(request, field.name) != field.default


@pytest.mark.parametrize(
    "field", [each for each in FIELDS if each.info.flags], ids=lambda field: field.name
)
def test_a_flag_has_the_type_of_its_field(field: JobField):
    [flag, *_] = field.info.flags
    words = [flag] if field.type == "bool" else [f"{flag}=2"]
    value = parse(command_named("submit"), words, path="rota submit")[field.name]
    expected = {"bool": True, "int": 2, "float": 2.0, "list[int]": [2]}
    other = "2" if field.type == "str" else ["2"]
    assert value == expected.get(field.type, other)


def test_no_two_fields_have_the_same_flag():
    flags = [flag for each in FIELDS for flag in each.info.flags]
    assert len(flags) == len(set(flags))


def test_settings_are_fields_with_the_same_defaults():
    for name, key in submit_keys().items():
        assert bool(key.default) == bool(job_fields()[name].default)
