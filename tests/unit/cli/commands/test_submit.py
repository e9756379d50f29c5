"""The input of `rota submit`: options, job files, stdin, settings and folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rota.client.endpoint import Endpoint
from rota.wire.jobs import JobRequest
from tests.golden.fake_client import FakeClient
from tests.unit.cli.conftest import Rota


class Recorder(FakeClient):
    """Keeps what is submitted. Its daemon is on this machine."""

    requests: list[JobRequest]

    def submit_many(self, jobs: list[JobRequest]) -> list[str]:
        type(self).requests = list(jobs)
        return super().submit_many(jobs)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("rota.client.Client", Recorder)
    monkeypatch.setattr("rota.config.load.SITE_FILE", tmp_path / "site.toml")
    monkeypatch.setenv("ROTA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def submitted(rota: Rota, *arguments: str, **options: Any) -> JobRequest:
    result = rota("submit", *arguments, **options)
    assert (result.code, result.err) == (0, "")
    return Recorder.requests[0]


def refused(rota: Rota, *arguments: str, **options: Any) -> str:
    result = rota("submit", *arguments, **options)
    assert (result.code, result.out) == (2, "")
    return result.err


def test_options_after_the_first_word_belong_to_the_command(rota: Rota):
    job = submitted(rota, "--gpus", "2", "python", "t.py", "--epochs", "3", "--help")
    assert (job.command, job.gpus) == (["python", "t.py", "--epochs", "3", "--help"], "2")
    assert job.epochs is None


def test_a_job_file_from_stdin(rota: Rota):
    job = submitted(rota, "-f", "-", stdin=b"command: [python, t.py]\ntime_limit: 1:30\n")
    assert (job.command, job.time_limit) == (["python", "t.py"], "1:30")


def test_a_word_of_yaml_that_is_no_text_elsewhere_is_text(rota: Rota):
    job = submitted(rota, "-f", "-", stdin=b"command: [true]\nname: no\nproject: 12\n")
    assert (job.command, job.name, job.project) == (["true"], "no", "12")


def test_a_time_is_the_same_in_a_file_a_setting_and_a_flag(rota: Rota, folder: Path):
    (folder / ".rota.toml").write_text("time_limit = 01:30:00\n")
    assert submitted(rota, "true").time_limit == "01:30:00"
    assert submitted(rota, "--time-limit", "1:30", "true").time_limit == "1:30"


def test_settings_without_quotes_are_texts(rota: Rota, folder: Path):
    (folder / ".rota.toml").write_text("gpus = 3\nproject = 7\nenv = {A = true}\n")
    job = submitted(rota, "true")
    assert (job.gpus, job.project, job.env["A"]) == ("3", "7", "true")


def test_a_key_that_is_given_twice_is_refused(rota: Rota):
    error = refused(rota, "-f", "-", stdin=b"command: [true]\ngpus: 1\ngpus: 2\n")
    assert error == "rota: standard input, row 3: 'gpus' is given twice; keep one of the two\n"


def test_an_empty_name_is_refused(rota: Rota):
    assert refused(rota, "--name", "", "true").startswith(
        "rota: option '--name' has an empty value"
    )
    error = refused(rota, "-f", "-", stdin=b"command: [true]\nname: ''\n")
    assert "field 'name': the name is empty; give a name" in error


def test_a_missing_job_file_is_wrong_input(rota: Rota):
    assert "no such file" in refused(rota, "-f", "missing.yaml")


def test_a_working_folder_that_does_not_exist_is_refused(rota: Rota, folder: Path):
    error = refused(rota, "--workdir", "typo", "true")
    assert error.startswith(f"rota: the working folder {folder}/typo does not exist; create it")
    (folder / "typo").mkdir()
    assert submitted(rota, "--workdir", "typo", "true").workdir == f"{folder}/typo"


def test_a_working_folder_in_an_image_or_on_another_machine_is_not_checked(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
):
    assert submitted(rota, "--image", "x", "--workdir", "/opt/x", "true").workdir == "/opt/x"
    monkeypatch.setattr(Recorder, "endpoint", Endpoint(url="http://far:80"))
    assert submitted(rota, "--workdir", "/opt/x", "true").workdir == "/opt/x"


def test_a_deleted_current_folder_is_one_line(
    rota: Rota, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    (folder / "gone").mkdir()
    monkeypatch.chdir(folder / "gone")
    (folder / "gone").rmdir()
    error = "rota: the current folder does not exist any more; change to another folder with 'cd'"
    assert refused(rota, "true").startswith(error)


def test_all_variables_of_the_shell(rota: Rota, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_SETTING", "1")
    monkeypatch.setenv("MY_TOKEN", "2")
    assert "MY_SETTING" not in submitted(rota, "true").env
    env = submitted(rota, "--env-all", "--env", "MY_TOKEN", "true").env
    assert (env["MY_SETTING"], env["MY_TOKEN"]) == ("1", "2")
    assert "MY_TOKEN" not in submitted(rota, "--env-all", "true").env
