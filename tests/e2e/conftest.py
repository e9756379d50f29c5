"""One daemon for the tests of a file, or one for a test alone."""

from collections.abc import Generator

import pytest

from tests.e2e.house import House, a_house


@pytest.fixture(scope="module")
def shared() -> Generator[House]:
    with a_house() as house:
        house.up()
        yield house


@pytest.fixture
def house(shared: House) -> Generator[House]:
    """Up, with four GPUs, and nobody's jobs left from before."""
    yield shared
    shared.clear()


@pytest.fixture
def own_house() -> Generator[House]:
    """For this test alone, with one GPU, and not up yet."""
    with a_house(gpus="1x16GiB") as house:
        yield house
