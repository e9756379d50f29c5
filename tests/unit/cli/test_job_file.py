"""Reading job files, and errors of wrong ones."""

from pathlib import Path
from typing import Any

import pytest

from rota.cli.job_file import read
from rota.errors import InputError


def reading(tmp_path: Path, text: str) -> list[dict[str, Any]]:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    return read(file)


def test_yaml_values_become_field_types(tmp_path: Path):
    text = """
        command: python train.py
        gpus: 2
        gpu-types: A100
        retry_on: 3
        env: {N: 4}
        hold: true
        hours: 1.5
    """
    assert reading(tmp_path, text) == [
        {
            "command": ["python", "train.py"],
            "gpus": "2",
            "gpu_types": ["A100"],
            "retry_on": [3],
            "env": {"N": "4"},
            "hold": True,
            "hours": 1.5,
        }
    ]


def test_several_jobs(tmp_path: Path):
    listed = "- {name: a}\n- {name: b}\n"
    documents = "name: a\n---\nname: b\n"
    assert (
        reading(tmp_path, listed) == reading(tmp_path, documents) == [{"name": "a"}, {"name": "b"}]
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the file has no job"),
        ("just words", "a job must be a mapping"),
        ("gpu: 2", "field 'gpu': unknown field; did you mean 'gpus'?"),
        ("env: [a]", "field 'env': "),
        ("hold: maybe", "field 'hold': 'maybe' is not true or false"),
        ("hours: long", "field 'hours': 'long' is not a number"),
        ("a: [", "row 1: the file is not YAML"),
        ("!!python/object/apply:os.system ['true']", "the file is not YAML"),
    ],
)
def test_errors_name_the_problem(tmp_path: Path, text: str, complaint: str):
    with pytest.raises(InputError) as caught:
        reading(tmp_path, text)
    assert complaint in str(caught.value)
