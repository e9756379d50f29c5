from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.integration.live.elastic_job import ElasticJob, WorkerForkServer, elastic_job


@pytest.fixture(scope="session")
def fork_server() -> Iterator[WorkerForkServer]:
    pytest.importorskip("torch")
    found = WorkerForkServer()
    yield found
    found.close()


@pytest.fixture
def start_job(fork_server: WorkerForkServer) -> Iterator[Callable[..., ElasticJob]]:
    """A folder with a short path, because it holds a Unix socket."""
    with ExitStack() as stack:

        def start(**options: Any) -> ElasticJob:
            folder = stack.enter_context(TemporaryDirectory(prefix="live-"))
            return stack.enter_context(elastic_job(fork_server, Path(folder), **options))

        yield start
