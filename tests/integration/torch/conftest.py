"""One process that has torch loaded, for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.integration.torch.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.integration.torch.warm") as opened:
        yield opened
