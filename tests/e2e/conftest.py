"""Fixtures: a daemon shared by the tests of a file, or one per test."""

from collections.abc import Generator

import pytest

from tests.support.daemon_process import DaemonProcess, temporary_daemon


@pytest.fixture(scope="module")
def shared() -> Generator[DaemonProcess]:
    with temporary_daemon() as daemon:
        daemon.up()
        yield daemon


@pytest.fixture
def daemon(shared: DaemonProcess) -> Generator[DaemonProcess]:
    """Up, with four GPUs, and nobody's jobs left from before."""
    yield shared
    shared.clear()


@pytest.fixture
def own_daemon() -> Generator[DaemonProcess]:
    """For this test alone, with one GPU, and not up yet."""
    with temporary_daemon(gpus="1x16GiB") as daemon:
        yield daemon
