"""The reference of the configuration is in step with the code."""

import pytest

from tests.tidy.config_tables import tables
from tests.tidy.tree import ROOT

PAGE = ROOT / "docs" / "reference" / "config.md"


@pytest.mark.parametrize("table", tables())
def test_every_key_is_in_the_reference(table: str) -> None:
    assert table in PAGE.read_text(), f"put this table into {PAGE.name}:\n{table}"
