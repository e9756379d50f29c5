"""The kustomize base and the Helm chart hold the same, and leave nothing out."""

from __future__ import annotations

import re
from typing import Any

import yaml

from rota.api.cluster_place import LEASE
from rota.api.leading import LABEL, VARIABLE
from rota.daemon.move_secret import SECRET as MOVES
from rota.engines.kubernetes.resources import STATE_SECRET
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


def test_the_chart_guards_the_same_names() -> None:
    text = re.sub(r"\{\{-? .*?\}\}", "x", (CHART / "templates" / "names.yaml").read_text())
    made = [each["spec"] for each in yaml.safe_load_all(text)]
    policy, binding = (each["spec"] for each in base("names.yaml"))
    assert made[0] == policy
    assert {**made[1], "policyName": "rota", "matchResources": {}} == {
        **binding,
        "matchResources": {},
    }


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
