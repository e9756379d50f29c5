"""Precedence of settings, validation, and error messages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from rota.config.load import LoadedSettings, Sources, daemon_settings, submit_settings
from rota.config.schema import DaemonSettings, JobDefaults
from rota.errors import UserError

SITE = """
min_runtime = "2m"
admins = ["user-1"]
backoff = 5

[defaults]
image = "base"
mounts = ["/home/{user}:/home"]
env = { HF_HOME = "/data", THREADS = 4 }

[projects.vision.defaults]
image = "vision"
env = { HF_HOME = "/fast" }
"""


def daemon(
    folder: Path,
    *,
    site: str = "",
    state: str = "",
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> LoadedSettings:
    (folder / "site.toml").write_text(site, encoding="utf-8")
    (folder / "config.toml").write_text(state, encoding="utf-8")
    sources = Sources(folder, environment or {}, flags or {}, site=folder / "site.toml")
    return daemon_settings(sources)


def test_defaults(tmp_path: Path):
    found = daemon_settings(Sources(tmp_path, {}, site=tmp_path / "nowhere.toml"))
    assert found.daemon() == DaemonSettings()
    assert found.defaults("vision") == JobDefaults()
    assert {each.origin for each in found} == {"default"}


def test_precedence_of_sources(tmp_path: Path):
    def policy(**sources: object) -> tuple[str, str]:
        found = daemon(tmp_path, site='policy = "srjf"', **sources)  # pyright: ignore[reportArgumentType]
        setting = found.get("policy")
        assert found.daemon().policy == setting.value
        return str(setting.value), setting.origin.removeprefix(f"{tmp_path}/")

    state, environment, flags = 'policy = "ffdl"', {"ROTA_POLICY": "afs-l"}, {"policy": "fifo"}
    assert policy() == ("srjf", "site.toml")
    assert policy(state=state) == ("ffdl", "config.toml")
    (tmp_path / "policy").write_text("tiresias\n")
    assert policy(state=state) == ("tiresias", "policy")
    assert policy(state=state, environment=environment) == ("afs-l", "ROTA_POLICY")
    assert policy(environment=environment, flags=flags) == ("fifo", "--policy")
    assert policy(environment=environment, flags={"policy": ""}) == ("afs-l", "ROTA_POLICY")


def test_values_have_their_types(tmp_path: Path):
    found = daemon(
        tmp_path,
        site=SITE,
        environment={"ROTA_LOG_SIZE": "1MiB", "ROTA_LOG_FILES": "2", "ROTA_ADMINS": "a, b"},
    )
    assert found.daemon() == DaemonSettings(
        min_runtime_s=120.0,
        backoff_s=5.0,
        log_file_bytes=2**20,
        log_files=2,
        admins=("a", "b"),
    )


def test_project_defaults_override_site_defaults(tmp_path: Path):
    found = daemon(tmp_path, site=SITE, state='[defaults.env]\nTHREADS = "8"')
    mounts = ("/home/{user}:/home",)
    of_site = JobDefaults(image="base", env={"HF_HOME": "/data", "THREADS": "8"}, mounts=mounts)
    of_project = {"HF_HOME": "/fast", "THREADS": "8"}
    assert found.defaults() == found.defaults("another") == of_site
    assert found.defaults("vision") == JobDefaults(image="vision", env=of_project, mounts=mounts)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('lisen = "x"', ", field 'lisen': unknown key; did you mean 'listen'?"),
        ("zzz = 1", ", field 'zzz': unknown key; known keys: listen, tls_cert, "),
        ("listen = 1", ", field 'listen': '1' is not a string"),
        ("grace = true", ", field 'grace': 'true' is not a time"),
        ("backoff = 'soon'", ", field 'backoff': 'soon' is not a time; write 90s, 15m, 2h, 1d"),
        ("min_runtime = -1", ", field 'min_runtime': '-1' is not a time; write"),
        ("log_size = '1 pound'", ", field 'log_size': '1 pound' is not an amount of memory"),
        ("log_files = 0", ", field 'log_files': '0' is not a whole number from 1 to 1000"),
        ("replace_stragglers = 1", ", field 'replace_stragglers': '1' is not a string"),
        ("replace_stragglers = 'often'", "'often' is neither true nor false"),
        ("log_files = 1.5", ", field 'log_files': '1.5' is not a whole number"),
        ("log_files = '²'", ", field 'log_files': '²' is not a whole number"),
        ("admins = 'user-1'", ", field 'admins': 'user-1' is not a list of strings"),
        ("admins = [1]", ", field 'admins': '1' is not a string"),
        ("defaults = 3", ", field 'defaults': must be a table"),
        ("[defaults]\nenv = 1", ", field 'defaults.env': '1' is not a table of strings"),
        ("[defaults]\nimag = 'x'", "'defaults.imag': unknown key; did you mean 'image'?"),
        ("[projects.a]\nx = 1", ", field 'projects.a.x': unknown key; known keys: defaults"),
        ("[projects]\na = 1", ", field 'projects.a': must be a table"),
        ("x = [", ": invalid TOML: "),
    ],
)
def test_error_names_file_and_key(tmp_path: Path, text: str, complaint: str):
    with pytest.raises(UserError) as error:
        daemon(tmp_path, state=text)
    assert str(error.value).startswith(f"{tmp_path}/config.toml")
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_error_names_the_variable(tmp_path: Path):
    with pytest.raises(UserError, match=r"^ROTA_LOG_FILES: 'many' is not a whole number"):
        daemon(tmp_path, environment={"ROTA_LOG_FILES": "many"})


def test_job_variables_are_not_settings(tmp_path: Path):
    environment = {"ROTA_JOB": "j1", "ROTA_ATTEMPT": "1", "ROTA_GRACE": ""}
    assert daemon(tmp_path, environment=environment).daemon() == DaemonSettings()


def test_nearest_project_file_wins(tmp_path: Path):
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / ".rota.toml").write_text('project = "far"')
    (tmp_path / "a" / ".rota.toml").write_text(
        'project = "near"\nmounts = ["/data:/data"]\npriority = 2\n[env]\nA = "1"'
    )
    found = submit_settings(Sources(deep, {"ROTA_PRIORITY": "7", "ROTA_GPU_TYPES": "A100"}))
    assert found.submit() == {
        "project": "near",
        "mounts": ["/data:/data"],
        "priority": 7,
        "gpu_types": ["A100"],
        "env": {"A": "1"},
    }
    assert submit_settings(Sources(tmp_path, {})).submit() == {"project": "far"}


def test_project_file_is_validated(tmp_path: Path):
    (tmp_path / ".rota.toml").write_text("prioity = 1")
    with pytest.raises(UserError, match=r"\.rota\.toml, field 'prioity': .* 'priority'\?"):
        submit_settings(Sources(tmp_path, {}))


def test_project_file_of_another_user_in_a_world_writable_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / ".rota.toml").write_text("image = 'evil'")
    tmp_path.chmod(0o777)
    assert submit_settings(Sources(tmp_path, {})).submit() == {"image": "evil"}
    if os.geteuid() == 0:
        os.chown(tmp_path / ".rota.toml", 4242, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(UserError, match="belongs to another user"):
        submit_settings(Sources(tmp_path, {}))


def test_the_size_of_a_job_is_no_default_for_jobs_that_it_submits(tmp_path: Path):
    environment = {"ROTA_GPUS": "4", "ROTA_PRIORITY": "7"}
    assert submit_settings(Sources(tmp_path, environment)).submit() == {"gpus": "4", "priority": 7}
    inside = environment | {"ROTA_JOB": "1abc"}
    assert submit_settings(Sources(tmp_path, inside)).submit() == {"priority": 7}
