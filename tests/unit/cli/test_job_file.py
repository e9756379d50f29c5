"""Reading job files, and errors of wrong ones."""

import os
from pathlib import Path
from typing import Any

import pytest

from rota.cli.job_file import job_file_lines, read, request, without_secrets
from rota.errors import InputError
from rota.wire.job_request import JobRequest


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


def test_a_command_line_is_split_like_in_a_shell(tmp_path: Path):
    text = """command: python train.py --name 'two words' --note "it's" a\\ b"""
    words = ["python", "train.py", "--name", "two words", "--note", "it's", "a b"]
    assert reading(tmp_path, text) == [{"command": words}]


@pytest.mark.parametrize(
    "written",
    [
        "true",
        "yes",
        "off",
        "007",
        "1.10",
        "1e3",
        "0x1F",
        "1_000",
        "2024-01-02",
        "1:30",
        "2024-02-30",
        "9" * 5000,
    ],
)
def test_text_keeps_the_form_in_which_it_is_written(tmp_path: Path, written: str):
    text = f"env: {{X: {written}}}\nname: {written}\ncommand: [python, {written}]\n"
    [job] = reading(tmp_path, text)
    assert job == {"env": {"X": written}, "name": written, "command": ["python", written]}


def test_an_anchor_is_a_value_too(tmp_path: Path):
    text = "env: &shared {X: true}\nnode_labels: *shared\n"
    assert reading(tmp_path, text) == [{"env": {"X": "true"}, "node_labels": {"X": "true"}}]


def test_an_estimate_may_be_left_open(tmp_path: Path):
    assert reading(tmp_path, "epochs: ~\nhours:\n") == [{"epochs": None, "hours": None}]


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
        ("hold: !!bool maybe", "field 'hold': 'maybe' is not true or false"),
        ("epochs: !!timestamp soon", "field 'epochs': 'soon' is not a number"),
        ("hours: long", "field 'hours': 'long' is not a number"),
        ("env: {X: }", "field 'env.X': it has no value; write '' for an empty text"),
        ("name: ~", "field 'name': it has no value; write '' for an empty text"),
        ("env: {X: [1]}", "field 'env.X': '[1]' is not text"),
        ("command: python 'x", "field 'command': no closing quotation; "),
        ("command: [[a]]", "field 'command': "),
        ("retries: 1.5", "field 'retries': '1.5' is not a whole number"),
        ("retries: true", "field 'retries': 'true' is not a whole number"),
        ("retry_on: [x]", "field 'retry_on': 'x' is not a whole number"),
        ("a: [", "row 1: the file is not YAML"),
        ("!!python/object/apply:os.system ['true']", "the file is not YAML"),
    ],
)
def test_errors_name_the_problem(tmp_path: Path, text: str, complaint: str):
    with pytest.raises(InputError) as caught:
        reading(tmp_path, text)
    assert complaint in str(caught.value)


LAUGHS = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 20))
MERGES = "".join(f"x{n}: &x{n} {{<<: [{', '.join([f'*x{n - 1}'] * 9)}]}}\n" for n in range(1, 20))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("gpus: 1\ngpus: 2", "row 2: 'gpus' is given twice; keep one of the two"),
        ("env: {A: 1, A: 2}", "row 1: 'A' is given twice; keep one of the two"),
        (
            "gpu-types: a\ngpu_types: b",
            "field 'gpu_types': the field is given twice, as 'gpu-types' and as 'gpu_types'; ",
        ),
        ("command: &c [echo, *c]", "row 1: a value contains itself; "),
        ("env: &e {<<: *e}", "row 1: a value contains itself; "),
        ("command: " + "[" * 50_000, "lists or mappings are nested too deeply; "),
        ("x0: &x0 [a]\n" + LAUGHS, "references multiply the values too often; "),
        ("x0: &x0 {a: b}\n" + MERGES, "references multiply the values too often; "),
        ("name: " + "x" * 1024**2, "the file is larger than 1 MiB; "),
    ],
)
def test_hostile_files_are_refused(tmp_path: Path, text: str, complaint: str):
    with pytest.raises(InputError) as caught:
        reading(tmp_path, text)
    assert complaint in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path):
    cases = {
        Path("/dev/zero"): "the file is larger than 1 MiB; ",
        tmp_path: "a directory; name a job file in it",
        tmp_path / "missing": "no such file or directory; check the name",
    }
    for path, complaint in cases.items():
        with pytest.raises(InputError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: {complaint}")


def test_a_pipe_is_read():
    """A shell passes the output of a command as a pipe: `rota submit -f <(generate-job)`."""
    reader, writer = os.pipe()
    os.write(writer, b"command: [true-job]\n")
    os.close(writer)
    assert read(Path(f"/dev/fd/{reader}"))[0]["command"] == ["true-job"]
    os.close(reader)


def test_a_written_job_file_is_read_as_the_same_request(tmp_path: Path):
    written = JobRequest(
        ["python", "-c", "print('a: b')\n", "7"],
        name="true",
        gpus="1..4@2",
        gpu_types=["A100"],
        env={"N": "4", "OFF": "no", "TEXT": "grün"},
        umask=0o027,
        hours=1.5,
        retry_on=[75],
        hold=True,
    )
    [values] = reading(tmp_path, "\n".join(job_file_lines(written)))
    assert request(values) == written


def test_a_job_file_without_secrets_names_them():
    found, secrets = without_secrets(JobRequest(["p"], env={"API_KEY": "x", "HF_HOME": "/y"}))
    assert (found.env, secrets) == ({"HF_HOME": "/y"}, ["API_KEY"])
