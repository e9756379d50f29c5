from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.integration.live.house import Job, Nursery, job


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    pytest.importorskip("torch")
    found = Nursery()
    yield found
    found.close()


@pytest.fixture
def start_job(nursery: Nursery) -> Iterator[Callable[..., Job]]:
    """A folder with a short path, because it holds a Unix socket."""
    with ExitStack() as stack:

        def start(**options: Any) -> Job:
            folder = stack.enter_context(TemporaryDirectory(prefix="live-"))
            return stack.enter_context(job(nursery, Path(folder), **options))

        yield start
