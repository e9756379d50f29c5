"""CI has every framework; elsewhere, tests of a missing framework are skipped."""

import importlib.util
import os

import pytest

FRAMEWORKS = ("torch", "lightning", "keras")


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_ci_has_every_framework(name: str) -> None:
    is_there = importlib.util.find_spec(name) is not None
    if not is_there and os.environ.get("CI") != "true":
        pytest.skip(f"{name} is not installed: its tests are skipped here, and run in CI")
    assert is_there, f"{name} is missing in CI: install the extra `frameworks`"
