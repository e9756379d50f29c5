"""One process with torch, Lightning and Keras loaded, for all examples."""

from collections.abc import Iterator

import pytest

from tests.integration.torch.fork_server import TorchForkServer


@pytest.fixture(scope="session")
def fork_server() -> Iterator[TorchForkServer]:
    with TorchForkServer("tests.integration.examples.preload") as opened:
        yield opened
