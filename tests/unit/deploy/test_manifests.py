"""The kustomize base and the Helm chart hold the same, and leave nothing out."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from rota.api.cluster_place import LEASE
from rota.api.leading import LABEL, VARIABLE
from rota.daemon.move_secret import SECRET as MOVES
from rota.engines.kubernetes.names import ATTEMPT, CARD, JOB, MANAGED_BY, ROLE, USER, WORKER
from rota.engines.kubernetes.resources import STATE_SECRET
from rota.store.training_jobs import ACCEPTED, SEAL
from tests.tidy.tree import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
BASE, CHART = FOLDER / "base", FOLDER / "chart" / "rota"


def base(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((BASE / name).read_text()))


def test_every_file_of_the_base_is_used() -> None:
    [listed] = base("kustomization.yaml")
    made = {file for each in listed["configMapGenerator"] for file in each["files"]}
    files = {path.name for path in BASE.iterdir()} - {"kustomization.yaml"}
    assert {*listed["resources"]} | made == files


def test_the_chart_has_the_same_definition() -> None:
    assert (CHART / "crds" / "crd.yaml").read_text() == (BASE / "crd.yaml").read_text()


def test_the_chart_gives_the_same_rights() -> None:
    """Its template is YAML but for names and labels."""
    text = re.sub(r"\{\{.*?\}\}", "x", (CHART / "templates" / "rights.yaml").read_text())
    made = [each.get("rules") for each in yaml.safe_load_all(text)]
    assert made == [each.get("rules") for each in base("rights.yaml")]


@pytest.mark.parametrize("name", ["names.yaml", "pods.yaml"])
def test_the_chart_guards_the_same(name: str) -> None:
    text = (CHART / "templates" / name).read_text()
    for word, meant in ((r'include "rota\.wide" \.', "rota"), (r"\.Release\.Namespace.*?", "rota")):
        text = re.sub(rf"\{{\{{-? {word} \}}\}}", meant, text)
    text = re.sub(r"\{\{-? .*?\}\}", "{}", text)
    made = [(each["metadata"]["name"], each["spec"]) for each in yaml.safe_load_all(text)]
    assert made == [(each["metadata"]["name"], each["spec"]) for each in base(name)]


def test_what_is_guarded_is_what_the_daemon_names() -> None:
    text = (BASE / "pods.yaml").read_text()
    assert f"['{STATE_SECRET}', '{MOVES}']" in text
    texts = text + (BASE / "names.yaml").read_text()
    for word in (ACCEPTED, SEAL, JOB, USER, MANAGED_BY):
        assert f"'{word}'" in texts
    prefix = "rota.dev/"
    assert all(each.startswith(prefix) for each in (ROLE, ATTEMPT, WORKER, CARD, LABEL))


def test_rights_name_what_the_daemon_names() -> None:
    named = {
        name: rule["verbs"]
        for role in base("rights.yaml")
        for rule in role.get("rules", ())
        for name in rule.get("resourceNames", ())
    }
    assert set(named) == {LEASE, STATE_SECRET, MOVES}


def test_no_right_is_for_everything() -> None:
    words = [
        word
        for role in base("rights.yaml")
        for rule in role.get("rules", ())
        for word in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
    ]
    assert "*" not in words
    assert not {"impersonate", "escalate", "bind", "deletecollection"} & set(words)


def test_the_service_leads_to_the_daemon_that_commands() -> None:
    [service], [deployment] = base("service.yaml"), base("deployment.yaml")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == {**labels, LABEL: "true"}
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert VARIABLE in [each["name"] for each in container["env"]]
