"""Settings that hold for every room."""

import pytest
from hypothesis import settings

from tests.counts import IS_LONG, count

# Short runs use the same examples every time, so that nobody's change turns red by chance; long
# runs look for new ones. A failure prints the line that replays it. There is no deadline for one
# example, because a busy machine is not a bug.
settings.register_profile(
    "ci", max_examples=count(500), derandomize=True, print_blob=True, deadline=None
)
settings.register_profile("long", max_examples=count(500), print_blob=True, deadline=None)
settings.load_profile("long" if IS_LONG else "ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs a cluster comes last: the first time, its programs are built meanwhile."""
    items.sort(key=lambda item: item.get_closest_marker("cluster") is not None)
