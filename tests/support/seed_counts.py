"""How much a randomised suite runs: a tenth by default, all with `scripts/test --long`, a hundredth
with `scripts/test --fast`."""

import os

import pytest

IS_LONG = os.environ.get("ROTA_TEST_LONG") == "1"
IS_FAST = os.environ.get("ROTA_TEST_FAST") == "1"


LONG_REASON = "takes minutes: scripts/test --long"
only_long = pytest.mark.skipif(not IS_LONG, reason=LONG_REASON)
"""For tests that cannot run a tenth of their counts."""


def count(full: int) -> int:
    """The number of examples or seeds to run now of a suite that has `full` of them."""
    return full if IS_LONG else max(1, full // (100 if IS_FAST else 10))


def seeds(full: int) -> range:
    """The seeds to run now, for `@pytest.mark.parametrize("seed", seeds(2_000))`."""
    return range(count(full))
