"""Jobs that run torchrun, under a real daemon."""

import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import join

import pytest

from tests.integration.torchrun.agents import SCRIPT, TORCHRUN, Line, environment, install, lines_of
from tests.support.daemon_process import DaemonProcess, temporary_daemon, wait_until

SHELL = {
    "standalone": "--standalone --nproc-per-node 2",
    "one node": "--nproc-per-node 2",
    "c10d": "--rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT --rdzv-id $ROTA_JOB"
    " --nnodes $WORLD_SIZE",
    "static": "--nnodes $WORLD_SIZE --node-rank $RANK --master-addr $MASTER_ADDR"
    " --master-port $MASTER_PORT",
}
N_AGENTS = {"standalone": 1, "one node": 1, "c10d": 2, "static": 2}
MODE = {"standalone": "fixed", "one node": "restart", "c10d": "restart", "static": "fixed"}


@pytest.fixture(scope="module")
def shared() -> Iterator[DaemonProcess]:
    with temporary_daemon(gpus="3x16GiB") as daemon:
        (daemon.state / "config.toml").write_text('min_runtime = "0s"\n')
        install(daemon.home / "installed")
        daemon.up()
        yield daemon


@pytest.fixture
def daemon(shared: DaemonProcess) -> Iterator[DaemonProcess]:
    yield shared
    shared.clear()


def torchrun(
    daemon: DaemonProcess, flags: str, *, folder: Path, collective: str = "plain", **fields: object
) -> str:
    """A job of one agent for each GPU."""
    folder.mkdir()
    words = f"exec {join(TORCHRUN)} {flags} {SCRIPT} {folder} {collective}"
    path = environment(daemon.home / "installed")["PYTHONPATH"]
    env = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PATH": str(Path(sys.executable).parent)}
    return daemon.submit(words, env=env, gpus_per_worker=1, **fields)


@pytest.mark.parametrize("kind", SHELL)
def test_scripts_without_rota_run_under_torchrun(
    daemon: DaemonProcess, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "run"
    gpus, mode = str(N_AGENTS[kind]), MODE[kind]
    # With torch's own rendezvous, the store of the agents holds the port.
    job = torchrun(daemon, SHELL[kind], folder=folder, collective="gloo", gpus=gpus, mode=mode)
    (folder / "finish").touch()
    assert daemon.ends(job).state == "succeeded", daemon.output(job)
    assert {(line.rank, line.size) for line in lines_of(folder)} == {("0", "2"), ("1", "2")}


def test_job_is_resized_with_the_free_gpus(daemon: DaemonProcess, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    filler = daemon.submit("say start; await room", gpus="2")
    daemon.says(filler, "start")
    flags = "--rdzv-backend=rota --nnodes=1:3 --max-restarts=0"
    job = torchrun(daemon, flags, folder=folder, gpus="1..3", mode="torchrun")
    steps(folder, job, Line("0", "0", "0", "1", "0"))
    daemon.allow("room")
    steps(folder, job, *(Line("1", str(n), str(n), "3", "0") for n in range(3)))

    other = daemon.submit("say start; await never", gpus="1")
    daemon.says(other, "start")
    wait_until(
        lambda: {line.size for line in lines_of(folder)} == {"1", "3", "2"},
        "two agents to continue",
    )
    (folder / "finish").touch()
    assert daemon.ends(job).state == "succeeded", daemon.output(job)
    assert len(daemon.starts(job)) == 1
    assert "agents run" in daemon.log()


def steps(folder: Path, job: str, *wanted: Line) -> None:
    wait_until(lambda: set(wanted) <= set(lines_of(folder)), f"{wanted} of {job}")
