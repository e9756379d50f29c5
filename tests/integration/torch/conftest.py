"""One process with torch loaded, for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.integration.torch.fork_server import TorchForkServer


@pytest.fixture(scope="session")
def fork_server() -> Iterator[TorchForkServer]:
    with TorchForkServer("tests.integration.torch.preload") as opened:
        yield opened
