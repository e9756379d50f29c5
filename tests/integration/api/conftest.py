"""One daemon for all tests of a file; it must be healthy after each of them."""

from collections.abc import Iterator

import pytest

from tests.integration.api.daemon_process import ApiDaemon, running


@pytest.fixture(scope="module")
def daemon() -> Iterator[ApiDaemon]:
    with running() as found:
        yield found
        assert found.is_well()
        assert "Traceback" not in found.log(), found.log()
