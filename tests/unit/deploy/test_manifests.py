"""The kustomize base is complete, and the Helm chart has the same rules and policies."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from rota.core.model.job import JobId
from rota.daemon.migration.secret_journal import SECRET as MOVES
from rota.engines.interface import WorkerId
from rota.engines.kubernetes.pods.naming import (
    ATTEMPT,
    JOB,
    MANAGED_BY,
    ROLE,
    SHARED_GPUS,
    TOKEN_SECRET_PREFIX,
    USER,
    WORKER,
    pod_name,
)
from rota.operator.training_jobs import STATE_SECRET
from rota.server.kubernetes_backend import LEASE
from rota.server.leader_label import LABEL, VARIABLE
from rota.store.kubernetes.crd_codec import ACCEPTED, SEAL
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


def test_the_chart_has_the_same_rbac_rules() -> None:
    """The template is YAML except for names and labels."""
    text = re.sub(r"\{\{.*?\}\}", "x", (CHART / "templates" / "rbac.yaml").read_text())
    made = [each.get("rules") for each in yaml.safe_load_all(text)]
    assert made == [each.get("rules") for each in base("rbac.yaml")]


@pytest.mark.parametrize(
    "name", ["admission-trainingjobs.yaml", "admission-pods.yaml", "admission-daemon.yaml"]
)
def test_the_chart_has_the_same_admission_policies(name: str) -> None:
    text = (CHART / "templates" / name).read_text()
    for word, meant in ((r'include "rota\.wide" \.', "rota"), (r"\.Release\.Namespace.*?", "rota")):
        text = re.sub(rf"\{{\{{-? {word} \}}\}}", meant, text)
    text = re.sub(r"\{\{-? .*?\}\}", "{}", text)
    made = [(each["metadata"]["name"], each["spec"]) for each in yaml.safe_load_all(text)]
    assert made == [(each["metadata"]["name"], each["spec"]) for each in base(name)]


def test_the_policies_protect_the_names_that_the_daemon_uses() -> None:
    text = (BASE / "admission-pods.yaml").read_text()
    assert f"'^({STATE_SECRET}|{MOVES})$|^{TOKEN_SECRET_PREFIX}'" in text
    own = (BASE / "admission-daemon.yaml").read_text()
    assert f"'^({STATE_SECRET}|{MOVES})$|^{TOKEN_SECRET_PREFIX}'" in own
    assert f"name == '{LEASE}'" in own
    assert pod_name(WorkerId(JobId("a"), 1, 0), 0).startswith("rota-")
    texts = text + (BASE / "admission-trainingjobs.yaml").read_text()
    for word in (ACCEPTED, SEAL, JOB, USER, MANAGED_BY):
        assert f"'{word}'" in texts
    prefix = "rota.dev/"
    assert all(each.startswith(prefix) for each in (ROLE, ATTEMPT, WORKER, SHARED_GPUS, LABEL))


def test_the_rbac_rules_name_the_objects_that_the_daemon_uses() -> None:
    named = {
        name: rule["verbs"]
        for role in base("rbac.yaml")
        for rule in role.get("rules", ())
        for name in rule.get("resourceNames", ())
    }
    assert set(named) == {LEASE, STATE_SECRET, MOVES}


def test_no_rbac_rule_has_a_wildcard() -> None:
    words = [
        word
        for role in base("rbac.yaml")
        for rule in role.get("rules", ())
        for word in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
    ]
    assert "*" not in words
    assert not {"impersonate", "escalate", "bind", "deletecollection"} & set(words)


def test_the_service_selects_the_leader() -> None:
    [service], [deployment] = base("service.yaml"), base("deployment.yaml")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == {**labels, LABEL: "true"}
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert VARIABLE in [each["name"] for each in container["env"]]
