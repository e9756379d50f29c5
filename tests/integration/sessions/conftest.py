"""One daemon for all tests of a file; each test has its own jobs."""

from collections.abc import Iterator

import pytest

from rota.client import Client
from tests.integration.sessions.daemon import Daemon, running


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running() as found:
        yield found


@pytest.fixture
def rota(daemon: Daemon) -> Iterator[Client]:
    """A client. After the test, every job ends, so that its GPU is free for the next test."""
    with daemon.client() as client:
        yield client
        live = client.jobs(states=("held", "queued", "starting", "running", "stopping")).jobs
        for job in live:
            client.cancel(job.id)
        for job in live:
            client.wait(job.id)
