"""One process that has torch, Lightning and Keras loaded, for all examples."""

from collections.abc import Iterator

import pytest

from tests.integration.torch.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.integration.examples.warm") as opened:
        yield opened
