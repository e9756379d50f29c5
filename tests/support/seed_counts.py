"""How much a randomised suite runs: a tenth by default, everything with `scripts/test --long`."""

import os

import pytest

IS_LONG = os.environ.get("ROTA_TEST_LONG") == "1"


only_long = pytest.mark.skipif(not IS_LONG, reason="takes minutes: scripts/test --long")
"""For what cannot be cut to a tenth."""


def count(full: int) -> int:
    """The number of examples or seeds to run now of a suite that has `full` of them."""
    return full if IS_LONG else max(1, full // 10)


def seeds(full: int) -> range:
    """The seeds to run now, for `@pytest.mark.parametrize("seed", seeds(2_000))`."""
    return range(count(full))
