"""What a daemon is started with: every setting arrives where it is used."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from rota.api.places import this_machine
from rota.api.serve import Settings
from rota.cli.up import pass_on, settings_of, warnings_of
from rota.core.view import Rules
from rota.daemon.admission import Defaults
from rota.engines.base import LogLimits
from rota.engines.local.gpus import Gpus
from rota.errors import UserError

FILE = """
listen = "127.0.0.1:8800"
policy = "tiresias:knob=4"
virtual_gpus = "4x16GiB"
admins = ["user-1"]
round_interval = 1
min_runtime = 2
restart_cost = 3
starvation_after = 4
backoff = 5
grace = "6s"
log_size = "1MiB"
log_files = 7

[defaults]
image = "base"
env = { A = "1" }
mounts = ["/data:/data"]

[projects.vision.defaults]
image = "vision"
"""


def gpus_of(settings: Settings) -> Gpus:
    place = settings.place
    assert isinstance(place, partial)
    assert place.func is this_machine
    return place.keywords["gpus"]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("ROTA_HOME", str(tmp_path))
    monkeypatch.setattr("rota.config.load.SITE_FILE", tmp_path / "site.toml")
    return tmp_path


def test_every_key_of_the_daemon_arrives(folder: Path):
    (folder / "config.toml").write_text(FILE)
    settings = settings_of(folder, {})
    assert settings.listen == ("127.0.0.1", 8800)
    assert settings.policy == "tiresias:knob=4"
    assert len(gpus_of(settings).read()) == 4
    assert settings.admins == frozenset({"user-1"})
    assert settings.rules == Rules(
        round_interval_s=1.0,
        min_runtime_s=2.0,
        restart_cost_s=3.0,
        starvation_after_s=4.0,
        backoff_s=5.0,
    )
    log = LogLimits(2**20, 7)
    site = Defaults(image="base", env={"A": "1"}, mounts=("/data:/data",), grace_s=6.0, log=log)
    assert settings.defaults("") == settings.defaults("another") == site
    assert settings.defaults("vision").image == "vision"


def test_without_files_it_is_as_built(folder: Path):
    settings = settings_of(folder, {})
    assert settings.rules == Rules()
    assert settings.defaults("vision") == Defaults()
    assert (settings.listen, settings.admins) == (None, frozenset())


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("policy", "fifi", "no policy 'fifi'"),
        ("listen", "nowhere", "'nowhere' is no address to listen on"),
        ("virtual_gpus", "many", "'many' does not name virtual GPUs"),
        ("engine", "slurm", "there is no engine 'slurm'"),
    ],
)
def test_a_wrong_value_is_told_with_its_place(folder: Path, name: str, value: str, words: str):
    flag = f"--{name.replace('_', '-')}"
    with pytest.raises(UserError, match=rf"^{flag}: {words}"):
        settings_of(folder, {name: value})
    path = folder / "config.toml"
    path.write_text(f'{name} = "{value}"')
    with pytest.raises(UserError, match=rf"^{path}: {words}"):
        settings_of(folder, {})


@pytest.mark.parametrize(
    ("engine", "name", "words"),
    [
        ("", "kubeconfig", "--kubeconfig is for --engine kubernetes, and this is local"),
        ("", "kube_context", "--context is for --engine kubernetes, and this is local"),
        ("local", "namespace", "--namespace is for --engine kubernetes, and this is local"),
        ("kubernetes", "virtual_gpus", "--virtual-gpus is for --engine local"),
    ],
)
def test_a_flag_for_another_engine_is_a_mistake(folder: Path, engine: str, name: str, words: str):
    value = "4x16GiB" if name == "virtual_gpus" else "lab"
    (folder / "config.toml").write_text(f'{name} = "{value}"')
    settings_of(folder, {"engine": engine})
    with pytest.raises(UserError, match=f"^{words}"):
        settings_of(folder, {"engine": engine, name: value})


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_root_on_loopback_needs_no_warning(host: str):
    assert warnings_of((host, 8800), are_accounts=True) == []
    assert warnings_of(None, are_accounts=False) == []


def test_what_is_allowed_and_should_be_known():
    [open_door] = warnings_of(("0.0.0.0", 8800), are_accounts=True)
    assert "nothing is encrypted" in open_door
    [one_account] = warnings_of(("127.0.0.1", 8800), are_accounts=False)
    assert "guards against accidents only" in one_account


CLUSTER = """
engine = "kubernetes"
namespace = "lab"
kube_context = "prod"
gpu_resource = "amd.com/gpu"
pod_image = "torch"
placeholder_image = "busybox"
pull_secrets = ["pull"]
service_account = "trainer"
priority_class = "low"
tolerations = ["gpu", "team=vision:NoSchedule"]
host_paths = ["/data"]
accounts = ["ada=1001:100"]
bind_patience = 1
stuck_after = 2
keep_ended = 60
keep_ended_jobs = 7
advertise = "http://rota.lab"
checkpoints = "pvc:shared/{user}/{job}"
"""


def test_every_key_of_a_cluster_arrives(folder: Path):
    pytest.importorskip("lightkube")
    (folder / "config.toml").write_text(CLUSTER)
    settings = settings_of(folder, {"listen": "127.0.0.1:8800"})
    assert isinstance(settings.place, partial)
    choice = settings.place.keywords["choice"]
    assert (choice.context, choice.volume) == ("prod", "pvc:shared/{user}/{job}")
    assert (choice.checkpoints, choice.listen) == (None, ("127.0.0.1", 8800))
    workers = choice.workers
    assert (workers.namespace, workers.gpu_resource, workers.image) == (
        "lab",
        "amd.com/gpu",
        "torch",
    )
    assert (workers.pull_secrets, workers.service_account) == (("pull",), "trainer")
    assert (workers.priority_class, workers.host_paths) == ("low", ("/data",))
    assert workers.tolerations == (
        {"key": "gpu", "operator": "Exists"},
        {"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"},
    )
    assert (workers.bind_patience_s, workers.stuck_after_s) == (1.0, 2.0)
    assert (workers.advertise, workers.placeholder_image) == ("http://rota.lab", "busybox")
    assert choice.accounts["ada"].uid == 1001
    assert (choice.keep.for_s, choice.keep.at_most) == (60.0, 7)
    assert settings.are_accounts
    assert settings.defaults("").are_contained


def test_a_toleration_that_is_none_is_told_with_its_place(folder: Path):
    pytest.importorskip("lightkube")
    (folder / "config.toml").write_text('engine = "kubernetes"\ntolerations = ["a:Never"]')
    with pytest.raises(UserError, match="'a:Never' is no toleration"):
        settings_of(folder, {})


def test_an_account_that_is_none_is_told_with_its_place(folder: Path):
    pytest.importorskip("lightkube")
    (folder / "config.toml").write_text('engine = "kubernetes"\naccounts = ["ada=1001"]')
    with pytest.raises(UserError, match=r"config\.toml: 'ada=1001' is no account"):
        settings_of(folder, {})


def test_a_daemon_does_not_end_because_nobody_waits_for_it_any_more():
    reading, writing = os.pipe()
    os.close(reading)
    pass_on(writing, b"ready")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writing)
