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
    """A running daemon with four GPUs and without jobs of earlier tests."""
    yield shared
    shared.clear()


@pytest.fixture
def own_daemon() -> Generator[DaemonProcess]:
    """A daemon for one test, with one GPU, not started yet."""
    with temporary_daemon(gpus="1x16GiB") as daemon:
        yield daemon
