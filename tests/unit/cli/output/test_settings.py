"""Settings are printed as people write them."""

from __future__ import annotations

import pytest

from rota.cli.output.settings import print_settings
from rota.wire.daemon import SettingView


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7_776_000.0, "90d"),
        (5400.0, "90m"),
        (7200.0, "2h"),
        (30.0, "30s"),
        (0.5, "0.5s"),
        (0.0, "0s"),
        (True, "true"),
        (False, "false"),
    ],
)
def test_values(capsys: pytest.CaptureFixture[str], value: float | bool, text: str):
    print_settings([SettingView("name", value, "default")], has_origin=False, as_json=False)
    assert capsys.readouterr().out.split()[-1] == text
