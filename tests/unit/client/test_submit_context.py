"""What a job takes along from the process that submits it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rota.client.submit_context import (
    all_variables,
    inherited_patterns,
    inherited_variables,
    with_submit_context,
    with_texts,
)
from rota.errors import UserError
from rota.wire.job_request import JobRequest

SHELL = {
    "PATH": "/bin",
    "PYTHONPATH": "/lib",
    "HF_HOME": "/models",
    "WANDB_PROJECT": "bert",
    "CUDA_LAUNCH_BLOCKING": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "EDITOR": "vi",
    "HOME": "/home/user-1",
}
OF_PYTEST = {"PYTEST_CURRENT_TEST"}
NEVER = {
    "WANDB_API_KEY": "secret",
    "HF_TOKEN": "secret",
    "TF_SECRET": "secret",
    "MLFLOW_TRACKING_PASSWORD": "secret",
    "hf_token": "secret",
    "CUDA_VISIBLE_DEVICES": "0",
    "ROTA_URL": "x",
    "RANK": "0",
    "BASH_FUNC_x%%": "() { :; }",
    "HF_BYTES": "\udcff",
}


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The variables above, an own folder and no site file."""
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in (SHELL | NEVER | {"PWD": "/", "SHLVL": "2"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rota.config.load.SITE_FILE", tmp_path / "site.toml")
    return tmp_path


def taken(**fields: Any) -> JobRequest:
    takes_all = fields.pop("takes_all", False)
    return with_submit_context(JobRequest(["true"], **fields), takes_all=takes_all)


def test_a_job_takes_along_the_folder_the_umask_and_the_variables_of_the_list(shell: Path):
    job = taken()
    assert job.workdir == str(shell)
    assert job.umask is not None
    assert set(job.env) == set(SHELL) - {"EDITOR", "HOME"}


def test_own_values_take_precedence():
    job = taken(workdir="/data", umask=0o77, env={"HF_HOME": "mine", "HF_TOKEN": "given"})
    assert (job.workdir, job.umask) == ("/data", 0o77)
    assert (job.env["HF_HOME"], job.env["HF_TOKEN"]) == ("mine", "given")


def test_a_job_with_an_image_takes_along_neither_folder_nor_variables():
    job = taken(image="pytorch")
    assert (job.workdir, job.env) == ("", {})


def test_a_shipped_job_has_the_folder_of_its_snapshot():
    assert taken(snapshot="0" * 64).workdir == ""


def test_all_variables_are_those_that_are_neither_secret_nor_of_rota_nor_of_the_shell():
    assert set(taken(takes_all=True).env) - OF_PYTEST == set(SHELL)


def test_all_variables_of_a_job_with_an_image_do_not_describe_this_machine():
    job = taken(takes_all=True, image="pytorch")
    assert set(job.env) - OF_PYTEST == set(SHELL) - {"PATH", "PYTHONPATH", "HOME"}
    assert all_variables({"CONDA_PREFIX": "/c"}, has_image=True) == {}


def test_the_site_replaces_the_list(shell: Path):
    (shell / "site.toml").write_text('inherit_env = ["EDITOR", "WANDB_*"]\n')
    assert set(taken().env) == {"EDITOR", "WANDB_PROJECT"}


def test_a_broken_site_file_is_the_daemons_business(shell: Path):
    default = inherited_patterns()
    for text in ("inherit_env = 3", "inherit_env = [", "\udcff"):
        (shell / "site.toml").write_text(text, errors="surrogateescape")
        assert inherited_patterns() == default


def test_a_pattern_without_a_star_is_a_whole_name():
    assert inherited_variables({"HF_HOME": "1", "HF": "2"}, ["HF"]) == {"HF": "2"}


def test_a_deleted_folder_is_an_error_that_says_so(shell: Path, monkeypatch: pytest.MonkeyPatch):
    gone = shell / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UserError, match="the current folder does not exist any more; change to"):
        taken()


def test_numbers_in_amounts_become_texts():
    given: dict[str, Any] = {"gpus": 2, "time_limit": 90, "grace": 1.5}
    found = with_texts(JobRequest(["true"], **given))
    assert (found.gpus, found.time_limit, found.grace) == ("2", "90", "1.5")
    unchanged = JobRequest(["true"], gpus="1..4")
    assert with_texts(unchanged) is unchanged
