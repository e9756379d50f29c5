"""The chart takes the settings that there are."""

import json

from rota.config.keys import Daemon, keys_of
from tests.tidy.tree import ROOT

SCHEMA = ROOT / "deploy/kubernetes/chart/rota/values.schema.json"


def test_a_setting_that_does_not_exist_is_refused_before_anything_is_installed() -> None:
    settings = json.loads(SCHEMA.read_text())["properties"]["settings"]
    assert settings["propertyNames"]["enum"] == list(keys_of(Daemon))
