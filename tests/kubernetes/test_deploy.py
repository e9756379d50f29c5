"""The manifests in `deploy/kubernetes` on a real API server: they are accepted, and their
permissions are sufficient and minimal."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.cluster.api import until
from tests.kubernetes.cluster.binaries import MissingError, find_or_build_helm
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.support.daemons import started_daemon
from tests.tidy.tree import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
CHART = FOLDER / "chart" / "rota"
TRAINING_JOB = {"apiVersion": "rota.dev/v1alpha1", "kind": "TrainingJob"}
NEEDED = [
    *(f"{verb} pods" for verb in ("get", "list", "watch", "create", "patch", "delete")),
    "get pods --subresource=log",
    *(f"{verb} pods --subresource=exec" for verb in ("get", "create")),
    *(f"{verb} pods --subresource=portforward" for verb in ("get", "create")),
    "create pods --subresource=binding",
    "create events",
    "list events",
    *(
        f"{verb} trainingjobs.rota.dev"
        for verb in ("get", "list", "watch", "create", "patch", "delete")
    ),
    "patch trainingjobs.rota.dev --subresource=status",
    "update trainingjobs.rota.dev --subresource=status",
    "update trainingjobs.rota.dev --subresource=finalizers",
    "create leases.coordination.k8s.io",
    "get leases.coordination.k8s.io/rota",
    "update leases.coordination.k8s.io/rota",
    "create secrets",
    "get secrets/rota-state",
    "patch secrets/rota-state",
    "get secrets/rota-moves",
    "patch secrets/rota-moves",
    "list nodes",
    "watch nodes",
    "list pods --all-namespaces",
    "watch pods --all-namespaces",
    "create tokenreviews.authentication.k8s.io",
]
REFUSED = [
    "get secrets",
    "list secrets",
    "get secrets/another",
    "delete secrets/rota-state",
    "get configmaps",
    "create deployments.apps",
    "patch deployments.apps",
    "create roles.rbac.authorization.k8s.io",
    "create serviceaccounts --subresource=token",
    "update leases.coordination.k8s.io/another",
    "delete leases.coordination.k8s.io/rota",
    "patch trainingjobs.rota.dev --subresource=scale",
    "deletecollection pods",
    "create pods --subresource=eviction",
    "get pods --namespace=kube-system",
    "create pods --namespace=kube-system",
    "patch pods --namespace=kube-system",
    "delete pods --namespace=kube-system",
    "create pods --subresource=exec --namespace=kube-system",
    "get pods --subresource=log --namespace=kube-system",
    "list trainingjobs.rota.dev --namespace=kube-system",
    "get nodes",
    "patch nodes",
    "get nodes --subresource=proxy",
    "create clusterrolebindings.rbac.authorization.k8s.io",
    "create subjectaccessreviews.authorization.k8s.io",
    "impersonate users",
    "list persistentvolumeclaims",
]


def run(cluster: Cluster, *words: str, given: str = "") -> str:
    env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run(words, env=env, input=given, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="session")
def built_helm() -> Path:
    try:
        return find_or_build_helm()
    except MissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


def objects(text: str) -> dict[str, dict[str, Any]]:
    """By kind and name, without labels and annotations."""
    found = [each for each in yaml.safe_load_all(text) if each]
    return {f"{each['kind']} {each['metadata']['name']}": each for each in found}


@contextmanager
def installed(cluster: Cluster, namespace: str, text: str) -> Iterator[None]:
    """A dry run first, then the real installation."""
    kubectl = ("kubectl", "--namespace", namespace)
    run(cluster, *kubectl, "apply", "--dry-run=server", "-f", "-", given=text)
    run(cluster, *kubectl, "apply", "-f", "-", given=text)
    kept = [each for each in yaml.safe_load_all(text) if each["kind"] != "CustomResourceDefinition"]
    try:
        yield
    finally:
        mine = yaml.safe_dump_all(kept)
        run(
            cluster, *kubectl, "delete", "--wait=false", "--ignore-not-found", "-f", "-", given=mine
        )


def rendered(cluster: Cluster, folder: str, namespace: str) -> str:
    """The manifests for the namespace of the test, without the namespace itself."""
    text = run(cluster, "kubectl", "kustomize", str(FOLDER / folder))
    made: list[dict[str, Any]] = []
    for each in yaml.safe_load_all(text):
        if each["kind"] == "Namespace":
            continue
        if each["metadata"].get("namespace"):
            each["metadata"]["namespace"] = namespace
        if each["kind"].startswith(("ClusterRole", "Validating")):
            each["metadata"]["name"] += f"-{namespace}"
        if each["kind"] == "ValidatingAdmissionPolicyBinding":
            each["spec"]["policyName"] += f"-{namespace}"
            within = each["spec"]["matchResources"]["namespaceSelector"]
            if "matchLabels" in within:
                within["matchLabels"] = {"kubernetes.io/metadata.name": namespace}
            for expression in within.get("matchExpressions", ()):
                expression["values"] = [namespace]
        if each["kind"] == "ClusterRoleBinding":
            each["roleRef"]["name"] += f"-{namespace}"
        for subject in each.get("subjects", ()):
            subject["namespace"] = namespace
        made.append(each)
    return yaml.safe_dump_all(made)


def answers(cluster: Cluster, namespace: str, question: str) -> str:
    """Ask the API server for permissions of the daemon's account, as `kubectl auth can-i` does."""
    verb, what, *rest = question.split()
    named, _, name = what.partition("/")
    resource, _, group = named.partition(".")
    words = [word.removeprefix("--").partition("=") for word in rest]
    flags = {key: value for key, _, value in words}
    where = "" if "all-namespaces" in flags else flags.get("namespace", namespace)
    asked = {"verb": verb, "group": group, "resource": resource, "name": name, "namespace": where}
    account = f"system:serviceaccounts:{namespace}"
    spec = {
        "user": f"system:serviceaccount:{namespace}:rota",
        "groups": ["system:serviceaccounts", account, "system:authenticated"],
        "resourceAttributes": {**asked, "subresource": flags.get("subresource", "")},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return "yes" if cluster.api.create(path, {"spec": spec})["status"].get("allowed") else "no"


@pytest.mark.parametrize("folder", ["base", "volume"])
def test_the_kustomize_base_is_accepted(cluster: Cluster, namespace: str, folder: str) -> None:
    with installed(cluster, namespace, rendered(cluster, folder, namespace)):
        found = cluster.api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/rota")
        assert found["spec"]["replicas"] == (2 if folder == "base" else 1)


def test_permissions_are_sufficient_and_minimal(cluster: Cluster, namespace: str) -> None:
    with installed(cluster, namespace, rendered(cluster, "base", namespace)):
        yes = {each: answers(cluster, namespace, each) for each in NEEDED}
        no = {each: answers(cluster, namespace, each) for each in REFUSED}
    assert {each for each, said in yes.items() if said != "yes"} == set()
    assert {each for each, said in no.items() if said != "no"} == set()


def test_users_cannot_submit_for_others(cluster: Cluster, namespace: str) -> None:
    if cluster.ours is None:
        pytest.skip("a given cluster's people are not ours to borrow")
    name, kubeconfig = cluster.person()
    kubectl = ["kubectl", "--namespace", namespace, "--kubeconfig", str(kubeconfig)]

    def made(verb: str, job: str, who: str = "", *, kind: str = "labels") -> str:
        meta = {"name": job, kind: {"rota.dev/user": who} if who else {}}
        body = TRAINING_JOB | {"metadata": meta, "spec": {"command": ["true"], "hold": True}}
        given = yaml.safe_dump(body)
        words = [*kubectl, verb, "-f", "-"]
        done = subprocess.run(words, input=given, text=True, capture_output=True, check=False)
        return done.stderr

    with installed(cluster, namespace, rendered(cluster, "base", namespace)):
        grant = ["kubectl", "--namespace", namespace, "create"]
        verbs = "--verb=get,list,create,patch,delete"
        run(cluster, *grant, "role", "jobs", verbs, "--resource=trainingjobs,pods")
        run(cluster, *grant, "rolebinding", "jobs", "--role=jobs", f"--user={name}")
        until(lambda: "may not submit jobs for" in made("create", "x", "ann"), "the policy")
        assert f"you are {name}" in made("create", "x", "ann")
        assert "may not submit jobs for" in made("create", "x", "a@b", kind="annotations")
        assert made("create", "mine", name) == ""
        assert (
            f"and the job must say so: set the label or annotation rota.dev/user: {name}"
            in made("create", "nobodys")
        )
        assert "may not submit jobs for" in made("apply", "mine", "ann")
        left = ["--overrides", '{"spec": {"schedulerName": "rota"}}', "--image=none"]
        words = [*kubectl, "run", "x", *left, "--labels=user=ann"]
        done = subprocess.run(words, text=True, capture_output=True, check=False)
        assert "may not create or change pods for ann" in done.stderr
        run(cluster, *kubectl, "run", "y", *left, f"--labels=user={name}")


def test_a_daemon_needs_no_more_permissions(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """It acquires the lease, writes its secret, watches nodes and pods, and processes an object."""
    with installed(cluster, namespace, rendered(cluster, "base", namespace)):
        kubeconfig = of_the_daemon(cluster, namespace, tmp_path)
        jobs = f"/apis/rota.dev/v1alpha1/namespaces/{namespace}/trainingjobs"
        with started_daemon(kubeconfig, namespace, tmp_path):
            spec = {"command": ["true"], "gpus": "1000"}
            cluster.api.create(jobs, {"metadata": {"name": "huge"}, "spec": spec} | TRAINING_JOB)
            told = until(lambda: conditions(cluster.api.get(f"{jobs}/huge")), "an answer")
        events = cluster.api.items(f"/api/v1/namespaces/{namespace}/events")
    assert "can never run" in told
    assert "huge" in [each["involvedObject"]["name"] for each in events]
    assert "forbidden" not in (tmp_path / "log").read_text().lower()


def of_the_daemon(cluster: Cluster, namespace: str, folder: Path) -> Path:
    """A kubeconfig with the permissions of the daemon's account."""
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/rota/token"
    token = cluster.api.create(account, {"spec": {}})["status"]["token"]
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    return kubeconfig


def conditions(job: dict[str, Any]) -> str:
    return " ".join(each["message"] for each in job.get("status", {}).get("conditions", ()))


def test_the_chart_is_installed(cluster: Cluster, namespace: str, built_helm: Path) -> None:
    words = ("--namespace", namespace, "--set", "settings.admin_groups={lab-admins}")
    text = run(cluster, str(built_helm), "template", "rota", str(CHART), *words)
    run(cluster, "kubectl", "apply", "--dry-run=server", "-f", "-", given=text)
    run(cluster, str(built_helm), "install", "rota", str(CHART), *words)
    try:
        path = f"/api/v1/namespaces/{namespace}/configmaps/rota-config"
        assert cluster.api.get(path)["data"]["config.toml"] == 'admin_groups = ["lab-admins"]\n'
        assert answers(cluster, namespace, "patch secrets/rota-state") == "yes"
        assert answers(cluster, namespace, "list secrets") == "no"
    finally:
        run(cluster, str(built_helm), "uninstall", "rota", "--namespace", namespace)


def test_chart_and_base_create_the_same_objects(cluster: Cluster, built_helm: Path) -> None:
    words = ("--namespace", "rota", "--set", "image.pullPolicy=Always")
    chart = objects(run(cluster, str(built_helm), "template", "rota", str(CHART), *words))
    base = objects(run(cluster, "kubectl", "kustomize", str(FOLDER / "base")))

    def pod(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
        spec = found["Deployment rota"]["spec"]["template"]["spec"]
        for volume in spec["volumes"]:
            # Kustomize adds a hash of the content to the name.
            volume.get("configMap", {}).pop("name", None)
        spec["containers"][0].pop("imagePullPolicy", None)
        return spec

    assert pod(chart) == pod(base)
    for name in ("Service rota", "NetworkPolicy rota", "NetworkPolicy rota-workers"):
        mine = (
            {"type": "ClusterIP", **base[name]["spec"]} if "Service" in name else base[name]["spec"]
        )
        assert chart[name]["spec"] == mine
    assert chart["PodDisruptionBudget rota"]["spec"] == base["PodDisruptionBudget rota"]["spec"]
    kinds = {name.split()[0] for name in base} - {"Namespace", "CustomResourceDefinition"}
    assert {name.split()[0] for name in chart} == kinds


@pytest.mark.parametrize(
    "mistake", ["replicas=0", "image.pullPolicy=Sometimes", "servce.port=1", "volume.enabled=often"]
)
def test_invalid_values_are_rejected(built_helm: Path, mistake: str) -> None:
    words = [str(built_helm), "template", "rota", str(CHART), "--set", mistake]
    done = subprocess.run(words, text=True, capture_output=True, check=False)
    assert done.returncode != 0
    assert mistake.split("=", maxsplit=1)[0].split(".", maxsplit=1)[0] in done.stderr
