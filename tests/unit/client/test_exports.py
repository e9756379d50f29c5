"""The names that a program imports from `rota.client`."""

import pytest

import rota.client


@pytest.mark.parametrize("name", rota.client.__all__)
def test_every_name_can_be_imported(name: str):
    assert getattr(rota.client, name).__name__ == name


def test_other_names_are_missing():
    with pytest.raises(AttributeError, match="no attribute 'LogRanges'"):
        _ = rota.client.LogRanges  # pyright: ignore[reportAttributeAccessIssue]
