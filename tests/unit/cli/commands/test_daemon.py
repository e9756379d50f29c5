"""`rota up`: every setting reaches the part of the daemon that uses it."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from rota.api.listeners import TcpAddress, TlsFiles
from rota.cli.commands.daemon import listen_warnings, notify_parent
from rota.config.limits import UserLimits
from rota.core.scheduling.view import Rules
from rota.daemon.jobs.admission import Defaults
from rota.engines.interface import LogLimits
from rota.engines.local.gpus import Gpus
from rota.errors import UserError
from rota.server.backend import local_backend
from rota.server.settings import Settings, settings_of

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
max_queued_jobs = 8
max_cpu_jobs = 9
max_shipped_bytes = "10GiB"

[defaults]
image = "base"
env = { A = "1" }
mounts = ["/data:/data"]

[projects.vision.defaults]
image = "vision"
"""


def gpus_of(settings: Settings) -> Gpus:
    backend = settings.backend
    assert isinstance(backend, partial)
    assert backend.func is local_backend
    return backend.keywords["gpus"]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("ROTA_HOME", str(tmp_path))
    monkeypatch.setattr("rota.config.load.SITE_FILE", tmp_path / "site.toml")
    return tmp_path


def test_every_daemon_setting_is_used(folder: Path):
    (folder / "config.toml").write_text(FILE)
    settings = settings_of(folder, {})
    assert settings.listen is not None
    assert (settings.listen.host, settings.listen.port) == ("127.0.0.1", 8800)
    assert settings.policy == "tiresias:knob=4"
    assert len(gpus_of(settings).read()) == 4
    assert settings.admins == frozenset({"user-1"})
    assert settings.rules == Rules(
        round_interval_s=1.0,
        min_runtime_s=2.0,
        restart_cost_s=3.0,
        starvation_after_s=4.0,
        backoff_s=5.0,
        max_cpu_jobs=9,
    )
    assert settings.limits == UserLimits(
        max_queued_jobs=8, max_cpu_jobs=9, max_shipped_bytes=10 * 2**30
    )
    log = LogLimits(2**20, 7)
    site = Defaults(image="base", env={"A": "1"}, mounts=("/data:/data",), grace_s=6.0, log=log)
    assert settings.defaults("") == settings.defaults("another") == site
    assert settings.defaults("vision").image == "vision"


@pytest.mark.parametrize("is_variable", [False, True])
def test_the_path_of_a_policy_does_not_depend_on_the_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_variable: bool
):
    (tmp_path / "mine.py").write_text("from rota.policies.fifo import Fifo as Mine\n")
    monkeypatch.chdir(tmp_path)
    spec = "./mine.py:Mine"
    if is_variable:
        monkeypatch.setenv("ROTA_POLICY", spec)
    settings = settings_of(folder, {} if is_variable else {"policy": spec})
    assert settings.policy == f"{tmp_path}/mine.py:Mine"


def test_defaults_without_files(folder: Path):
    settings = settings_of(folder, {})
    assert settings.rules == Rules(max_cpu_jobs=0)
    assert settings.defaults("vision") == Defaults()
    assert (settings.listen, settings.admins) == (None, frozenset())


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("policy", "fifi", "no policy 'fifi'"),
        ("listen", "nowhere", "'nowhere' is not a valid listen address"),
        ("virtual_gpus", "many", "invalid virtual GPUs: 'many'"),
        ("engine", "slurm", "unknown engine 'slurm'"),
    ],
)
def test_wrong_value_names_its_source(folder: Path, name: str, value: str, words: str):
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
        ("", "kubeconfig", "--kubeconfig needs --engine kubernetes, but the engine is local"),
        ("", "kube_context", "--context needs --engine kubernetes, but the engine is local"),
        ("local", "namespace", "--namespace needs --engine kubernetes, but the engine is local"),
        ("kubernetes", "virtual_gpus", "--virtual-gpus needs --engine local"),
    ],
)
def test_flag_of_another_engine_is_refused(folder: Path, engine: str, name: str, words: str):
    value = "4x16GiB" if name == "virtual_gpus" else "lab"
    (folder / "config.toml").write_text(f'{name} = "{value}"')
    settings_of(folder, {"engine": engine})
    with pytest.raises(UserError, match=f"^{words}"):
        settings_of(folder, {"engine": engine, name: value})


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_root_on_loopback_needs_no_warning(host: str):
    tls = TlsFiles(Path("cert"), Path("key"))
    assert listen_warnings(TcpAddress(host, 8800, tls), are_accounts=True) == []
    assert listen_warnings(None, are_accounts=False) == []


def test_listening_on_tcp_gives_warnings():
    [reachable] = listen_warnings(TcpAddress("0.0.0.0", 8800), are_accounts=True)
    assert "not encrypted" in reachable
    tls = TlsFiles(Path("cert"), Path("key"))
    [one_account] = listen_warnings(TcpAddress("127.0.0.1", 8800, tls), are_accounts=False)
    assert "protect against mistakes only" in one_account


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


def test_every_cluster_setting_is_used(folder: Path):
    pytest.importorskip("aiohttp")
    (folder / "config.toml").write_text(CLUSTER)
    settings = settings_of(folder, {"listen": "127.0.0.1:8800"})
    assert isinstance(settings.backend, partial)
    config = settings.backend.keywords["config"]
    assert (config.context, config.volume) == ("prod", "pvc:shared/{user}/{job}")
    assert config.checkpoints is None
    workers = config.workers
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
    assert config.accounts["ada"].uid == 1001
    assert (config.keep.for_s, config.keep.at_most) == (60.0, 7)
    assert settings.are_accounts
    assert settings.defaults("").are_contained


def test_wrong_toleration_names_its_source(folder: Path):
    pytest.importorskip("aiohttp")
    (folder / "config.toml").write_text('engine = "kubernetes"\ntolerations = ["a:Never"]')
    with pytest.raises(UserError, match="'a:Never' is not a valid toleration"):
        settings_of(folder, {})


def test_wrong_account_names_its_source(folder: Path):
    pytest.importorskip("aiohttp")
    (folder / "config.toml").write_text('engine = "kubernetes"\naccounts = ["ada=1001"]')
    with pytest.raises(UserError, match=r"config\.toml: 'ada=1001' is not a valid account"):
        settings_of(folder, {})


def test_daemon_survives_the_exit_of_its_parent():
    reading, writing = os.pipe()
    os.close(reading)
    notify_parent(writing, b"ready")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writing)
