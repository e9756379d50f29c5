"""Job files: what is read, and what is told about a wrong one."""

from pathlib import Path
from typing import Any

import pytest

from rota.cli.job_file import read
from rota.errors import InputError


def reading(tmp_path: Path, text: str) -> list[dict[str, Any]]:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    return read(file)


def test_what_yaml_makes_of_numbers_and_words_is_what_was_meant(tmp_path: Path):
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
        ("", "it holds no job"),
        ("just words", "a job is a mapping"),
        ("gpu: 2", "field 'gpu': there is no such field; did you mean 'gpus'?"),
        ("env: [a]", "field 'env': "),
        ("hold: maybe", "field 'hold': 'maybe' is not true or false"),
        ("hours: long", "field 'hours': 'long' is not a number"),
        ("a: [", "row 1: it is not YAML"),
        ("!!python/object/apply:os.system ['true']", "it is not YAML"),
    ],
)
def test_complaints(tmp_path: Path, text: str, complaint: str):
    with pytest.raises(InputError) as caught:
        reading(tmp_path, text)
    assert complaint in str(caught.value)
