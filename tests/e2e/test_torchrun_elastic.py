"""A torchrun job under a real daemon: its owner changes its size, and its agents are killed."""

import os
import signal
from collections.abc import Generator

import pytest

from tests.e2e.house import House, a_house
from tests.e2e.torchruns import Agents
from tests.integration.torchrun.agents import install

SETTINGS = {"ROTA_MIN_RUNTIME": "0s", "ROTA_RESTART_COST": "0s"}


@pytest.fixture
def house() -> Generator[House]:
    with a_house(gpus="3x16GiB", settings=SETTINGS) as house:
        install(house.home / "installed")
        house.up()
        yield house


def test_the_owner_grows_and_shrinks_it_and_it_outlives_its_agents(house: House) -> None:
    job = Agents(house, installed=house.home / "installed")
    generation, agents = job.grows_and_shrinks()
    for victim in agents:
        # And nothing else: what it started is its keeper's business.
        os.kill(job.pid(victim), signal.SIGKILL)
        generation, agents = job.train(2, after=generation)
        assert victim not in agents
    job.finishes()
