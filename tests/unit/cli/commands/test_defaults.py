"""Defaults of `rota submit`, `rota config show`, and `rota report`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.cli import complete
from rota.cli.support_bundle import last_bytes
from rota.client import Client
from rota.wire.jobs import JobRequest
from tests.golden.fake_client import FakeClient
from tests.unit.cli.conftest import Rota

PROJECT = """
project = "vision"
image = "usual"
mounts = ["/data:/data"]
priority = 3
env = { A = "project", B = "project", C = "project" }
"""


class Recorder(FakeClient):
    """Keeps what is submitted."""

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


def submitted(rota: Rota, *arguments: str) -> JobRequest:
    assert rota("submit", *arguments).code == 0
    return Recorder.requests[0]


def test_project_file_sets_defaults(rota: Rota, folder: Path):
    (folder / ".rota.toml").write_text(PROJECT)
    job = submitted(rota, "--", "true")
    assert (job.project, job.image, job.priority) == ("vision", "usual", 3)
    assert job.mounts == ["/data:/data"]
    assert job.env == {"A": "project", "B": "project", "C": "project"}


def test_job_file_and_flags_override_the_project_file(
    rota: Rota, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    (folder / ".rota.toml").write_text(PROJECT)
    (folder / "job.yaml").write_text("command: [true]\npriority: 5\nenv: {B: file, C: file}\n")
    monkeypatch.setenv("ROTA_PROJECT", "speech")
    monkeypatch.setenv("ROTA_PRIORITY", "4")
    job = submitted(rota, "-f", "job.yaml", "--image", "mine", "--env", "C=flag")
    assert (job.project, job.image, job.priority) == ("speech", "mine", 5)
    assert job.env == {"A": "project", "B": "file", "C": "flag"}


def test_a_mistake_in_the_project_file_stops_the_submit(rota: Rota, folder: Path):
    (folder / ".rota.toml").write_text("imag = 'x'")
    result = rota("submit", "--", "true")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        f"rota: {folder}/.rota.toml, field 'imag': unknown key; did you mean 'image'?\n"
    )


def shown(rota: Rota, *flags: str) -> dict[str, tuple[object, str]]:
    listed = json.loads(rota("config", "show", "--origin", "--json", *flags).out)
    return {each["name"]: (each["value"], each["origin"]) for each in listed}


def test_config_show_of_the_client(rota: Rota, folder: Path):
    (folder / ".rota.toml").write_text("priority = 3")
    found = shown(rota, "--client")
    assert found["home"] == (str(folder), "ROTA_HOME")
    assert found["submit.priority"] == (3, f"{folder}/.rota.toml")
    assert "policy" not in found


def test_config_show_of_the_daemon(rota: Rota):
    assert shown(rota)["min_runtime"] == (43200.0, "ROTA_MIN_RUNTIME")
    lines = [line.split() for line in rota("config", "show").out.splitlines()]
    assert ["min_runtime", "12h"] in lines
    assert ["admins", "user-1,", "user-2"] in lines
    plain = json.loads(rota("config", "show", "--json").out)
    assert [set(each) for each in plain] == [{"name", "value"}] * len(plain)


def test_config_show_without_a_daemon(rota: Rota, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.client.Client", Client)
    (folder / "config.toml").write_text('min_runtime = "2m"\n[defaults.env]\nA = "1"\n')
    (folder / "flags.json").write_text('{"virtual_gpus": "2x16GiB"}')
    monkeypatch.setenv("ROTA_GRACE", "45s")
    result = rota("config", "show", "--origin")
    assert (result.code, result.err) == (
        0,
        f"rota: no daemon at {folder}/rota.sock: these settings apply to the next 'rota up'\n",
    )
    lines = [line.split(maxsplit=2) for line in result.out.splitlines()]
    assert ["home", str(folder), "ROTA_HOME"] in lines
    assert ["policy", "elastic-fifo", "default"] in lines
    assert ["min_runtime", "2m", f"{folder}/config.toml"] in lines
    assert ["grace", "45s", "ROTA_GRACE"] in lines
    assert ["virtual_gpus", "2x16GiB", "last start, --virtual-gpus"] in lines
    assert ["defaults.env.A", "1", f"{folder}/config.toml"] in lines
    assert ["log_size", "64", "MiB"] in [
        line[:3] for line in map(str.split, result.out.splitlines())
    ]


def test_config_show_does_not_invent_settings_of_another_daemon(
    rota: Rota, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rota.client.Client", Client)
    monkeypatch.setenv("ROTA_URL", f"unix://{folder}/other/rota.sock")
    result = rota("config", "show")
    assert (result.code, result.out) == (1, "")
    assert f"no daemon at {folder}/other/rota.sock" in result.err


def test_report_is_private_and_overwrites_no_file(rota: Rota, folder: Path):
    path = folder / "rota-report-1q1ghcmf.md"
    assert rota("report", "bert").out.startswith(f"wrote {path.name}; ")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().startswith("# rota report: job 1q1ghcmf (bert)\n")
    result = rota("report", "bert")
    assert (result.code, result.out) == (2, "")
    assert result.err == f"rota: {path.name} already exists; choose another file with --output\n"
    assert rota("report", "bert", "-o", "/nowhere/x").code == 2


@pytest.mark.parametrize(
    ("chunks", "end"),
    [
        ([], b""),
        ([b"ab\n", b"cd\n"], b"ab\ncd\n"),
        ([b"secret\n", b"abc\n", b"def\n"], b"abc\ndef\n"),
        ([b"0123456789 secret word"], b"word"),
        ([b"x" * 100], b""),
        ([b"x" * 100, b"\nend"], b"end"),
    ],
)
def test_log_tail_begins_with_a_whole_line(chunks: list[bytes], end: bytes):
    assert last_bytes(chunks, 10) == end


def test_jobs_are_completed_by_name_and_id():
    assert complete.jobs("b") == [
        ("bert", "1q1ghcmf running"),
        ("broken", "1q1gxzs9 failed"),
    ]
    assert complete.jobs("1q1gx") == [("1q1gxzs9", "broken failed")]
    assert complete.nodes("o") == [("old-box", "")]


def test_jobs_that_have_not_ended_are_completed_first():
    assert [word for word, _ in complete.jobs("")] == ["bert", "1q1ghcmf", "broken", "1q1gxzs9"]


def test_values_of_options_are_completed():
    assert ("vision", "") in complete.projects("v")
    assert ("tiresias", "") in complete.policies("tir")
    assert complete.states("running,qu") == [("running,queued", "")]
    suggested = complete.suggestions(["submit", "--mode", "l"], shell="bash")
    assert suggested == "live"
    assert complete.suggestions(["policy", "set", "elastic-f"], shell="bash") == "elastic-fifo"
    assert "running" in complete.suggestions(["list", "-s", "ru"], shell="bash")
