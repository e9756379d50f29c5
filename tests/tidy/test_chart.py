"""The Helm chart agrees with the settings of the daemon and with the kustomize base."""

import json

from rota.config.schema import daemon_keys
from tests.tidy.chart import generated_files
from tests.tidy.tree import ROOT

SCHEMA = ROOT / "deploy/kubernetes/chart/rota/values.schema.json"


def test_the_chart_rejects_unknown_settings() -> None:
    settings = json.loads(SCHEMA.read_text())["properties"]["settings"]
    assert settings["propertyNames"]["enum"] == list(daemon_keys())


def test_the_generated_files_of_the_chart_are_up_to_date() -> None:
    outdated = [path.name for path, text in generated_files().items() if path.read_text() != text]
    assert outdated == [], "run scripts/generate"
