"""Live trainings under a real daemon: they grow and shrink, and outlive whoever is killed."""

import os
import signal
from collections.abc import Generator

import pytest

from tests.e2e.house import House, a_house, wait_until
from tests.e2e.live import LiveJob

SETTINGS = {"ROTA_MIN_RUNTIME": "0s", "ROTA_HEARTBEAT": "5s", "ROTA_RESTART_COST": "0s"}


@pytest.fixture
def house() -> Generator[House]:
    """Up, with four GPUs, and a daemon that does not mind changes."""
    with a_house(settings=SETTINGS) as house:
        house.up()
        yield house


def test_it_grows_and_shrinks_as_others_come_and_go(house: House) -> None:
    first = house.submit("say start; await first", gpus="3")
    house.says(first, "start")
    job = LiveJob(house)
    assert job.trains_with(1) == [0]
    house.allow("first")
    assert job.trains_with(4) == [0, 1, 2, 3]
    second = house.submit("say start; await second", gpus="2")
    assert job.trains_with(2) == [0, 1]
    house.says(second, "start")
    job.finishes()
    assert job.attempt() == 1
