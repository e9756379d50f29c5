"""The lists of exceptions can only shrink."""

import pytest

from tests.tidy.ratchet import complaints


@pytest.mark.parametrize(
    ("size", "listed", "expected"),
    [
        (300, None, ""),
        (301, None, "too large"),
        (301, 310, ""),
        (310, 310, ""),
        (311, 310, "too large"),
        (300, 310, "remove the exception"),
        (None, 310, "remove the exception"),
    ],
)
def test_complaints(size: int | None, listed: int | None, expected: str) -> None:
    measured = {} if size is None else {"a.py": size}
    exceptions = {} if listed is None else {"a.py": listed}
    found = complaints(measured=measured, wanted=300, exceptions=exceptions)
    assert found.startswith(expected)
    assert bool(found) == bool(expected)
