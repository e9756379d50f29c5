"""A torchrun job under a real daemon: resizes and killed agents."""

import os
import signal
from collections.abc import Generator

import pytest

from tests.integration.torchrun.agents import install
from tests.support.daemon_process import DaemonProcess, temporary_daemon
from tests.support.torchrun_job import TorchrunJob

SETTINGS = {"ROTA_MIN_RUNTIME": "0s", "ROTA_RESTART_COST": "0s"}


@pytest.fixture
def daemon() -> Generator[DaemonProcess]:
    with temporary_daemon(gpus="3x16GiB", settings=SETTINGS) as daemon:
        install(daemon.home / "installed")
        daemon.up()
        yield daemon


def test_torchrun_job_is_resized_by_its_owner_and_survives_killed_agents(
    daemon: DaemonProcess,
) -> None:
    job = TorchrunJob(daemon, installed=daemon.home / "installed")
    generation, agents = job.grows_and_shrinks()
    for victim in agents:
        # Kill only the agent: its supervisor ends its processes.
        os.kill(job.pid(victim), signal.SIGKILL)
        generation, agents = job.train(2, after=generation)
        assert victim not in agents
    job.finishes()
