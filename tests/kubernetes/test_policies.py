"""The admission policies of `deploy/kubernetes` on a real API server."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.kubernetes.cluster.api import until
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.support.daemons import started_daemon
from tests.kubernetes.test_deploy import TRAINING_JOB, installed, of_the_daemon, rendered, run

RESOURCES = (
    "trainingjobs,trainingjobs/scale,pods,pods/ephemeralcontainers"
    ",jobs.batch,cronjobs.batch,deployments.apps"
)
CREATE = ("create", "-f", "-")
TRY = ("create", "--dry-run=server", "-f", "-")
CONTROLLERS = "system:serviceaccount:kube-system:"
MAIN = {"name": "main", "image": "none"}
OF_THE_DAEMON: list[tuple[str, dict[str, Any]]] = [
    ("service account", {"serviceAccountName": "rota"}),
    ("secrets", {"volumes": [{"name": "v", "secret": {"secretName": "rota-state"}}]}),
    (
        "secrets",
        {
            "volumes": [
                {"name": "v", "projected": {"sources": [{"secret": {"name": "rota-moves"}}]}}
            ]
        },
    ),
    (
        "secrets",
        {
            "initContainers": [
                {"name": "i", "image": "none", "envFrom": [{"secretRef": {"name": "rota-state"}}]}
            ]
        },
    ),
    (
        "secrets",
        {
            "containers": [
                MAIN
                | {
                    "env": [
                        {"name": "A", "value": "b"},
                        {
                            "name": "K",
                            "valueFrom": {"secretKeyRef": {"name": "rota-state", "key": "key"}},
                        },
                    ]
                }
            ]
        },
    ),
    ("secrets", {"volumes": [{"name": "v", "secret": {"secretName": "rota-token-j-a1-g0-00"}}]}),
    ("claim", {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "rota"}}]}),
]


class Says(Protocol):
    """The output of kubectl for a user; an empty name means the administrator."""

    def __call__(self, who: str, *words: str, given: object = None) -> str: ...


@pytest.fixture
def says(cluster: Cluster, namespace: str) -> Iterator[Says]:
    """With policies, for users with all permissions on jobs and pods."""

    def asked(who: str, *words: str, given: object = None) -> str:
        kubectl = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace]
        kubectl += [f"--as={who}"] if who else []
        if who.startswith("system:serviceaccount:"):
            kubectl += [f"--as-group=system:serviceaccounts:{who.split(':')[2]}"]
        done = subprocess.run(
            [*kubectl, *words], input=json.dumps(given), text=True, capture_output=True, check=False
        )
        return done.stdout + done.stderr

    with installed(cluster, namespace, rendered(cluster, "base", namespace)):
        grant = ["kubectl", "--namespace", namespace, "create"]
        run(cluster, *grant, "role", "all", "--verb=*", f"--resource={RESOURCES}")
        people = ["--user=ann", "--user=ben", "--user=ann@lab.example"]
        run(cluster, *grant, "rolebinding", "all", "--role=all", *people)
        until(lambda: "denied" in asked("ann", *TRY, given=job("x")), "the policy of names")
        until(lambda: "denied" in asked("ann", *TRY, given=pod("rota-x")), "that of pods")
        yield asked


def job(name: str, **meta: Any) -> dict[str, Any]:
    return TRAINING_JOB | {"metadata": {"name": name, **meta}, "spec": {"command": ["true"]}}


def pod(name: str, spec: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    kind = {"apiVersion": "v1", "kind": "Pod"}
    return kind | {"metadata": {"name": name, **meta}, "spec": template(spec)["spec"]}


def template(spec: dict[str, Any] | None = None, mark: str = "a") -> dict[str, Any]:
    whole = {"containers": [MAIN], "restartPolicy": "Never"} | (spec or {})
    return {"metadata": {"labels": {"a": "b", mark: "b"}}, "spec": whole}


def of(user: str) -> dict[str, str]:
    return {"rota.dev/user": user}


def test_only_the_owner_changes_and_deletes_a_job(says: Says, namespace: str) -> None:
    assert "created" in says("ann", *CREATE, given=job("x", labels=of("ann")))
    hold = ("patch", "tj", "x", "--type=merge", "--patch", '{"spec": {"hold": true}}')
    all_of_them = f"/apis/rota.dev/v1alpha1/namespaces/{namespace}/trainingjobs"
    for words in (
        hold,
        ("label", "tj", "x", "rota.dev/user=ben", "--overwrite"),
        ("delete", "tj", "x"),
        ("delete", "--raw", all_of_them),
    ):
        assert "you are ben, but this job belongs to ann" in says("ben", *words)
    relabel = ("label", "tj", "x", "rota.dev/user=ben", "--overwrite")
    assert "may not submit jobs for ben" in says("ann", *relabel)
    assert "patched" in says("ann", *hold)
    assert "deleted" in says("ann", "delete", "tj", "x")


def test_an_annotation_names_the_owner(says: Says) -> None:
    """As the daemon writes it: the label is only informative, and may be the name of another
    user."""
    made = job("x", annotations=of("ann@lab.example"), labels=of("ben"))
    assert "created" in says("", *CREATE, given=made)
    assert "this job belongs to ann@lab.example" in says("ben", "delete", "tj", "x")
    assert "annotated" in says("ann@lab.example", "annotate", "tj", "x", "a=b")
    assert "deleted" in says("ann@lab.example", "delete", "tj", "x")
    shown = job("y", annotations=of("ann"), labels=of("ben"))
    assert "may not submit jobs for ben" in says("ann", *TRY, given=shown)


def test_a_job_without_a_user_has_no_owner(says: Says) -> None:
    assert "created" in says("", *CREATE, given=job("x"))
    assert "this job has no owner" in says("ann", "delete", "tj", "x")
    assert "deleted" in says("", "delete", "tj", "x")


def test_only_the_owner_scales_a_job(
    cluster: Cluster, says: Says, namespace: str, tmp_path: Path
) -> None:
    """After the daemon has accepted the job."""
    made = job("x", labels=of("ann"))
    made["spec"] |= {"gpus": "0", "hold": True}
    says("ann", *CREATE, given=made)
    scale = ("scale", "tj", "x", "--replicas=1")
    assert "not accepted yet" in says("ann", *scale)
    selector = ("get", "tj", "x", "-o", "jsonpath={.status.selector}")
    with started_daemon(of_the_daemon(cluster, namespace, tmp_path), namespace, tmp_path):
        until(lambda: "rota.dev/user=ann" in says("ann", *selector), "a status")
        assert "you are ben, but this job belongs to ann" in says("ben", *scale)
        assert "scaled" in says("ann", *scale)
        assert "deleted" in says("ann", "delete", "tj", "x")


def test_only_the_daemon_writes_accepted_jobs(says: Says, namespace: str) -> None:
    for word in ("rota.dev/accepted", "rota.dev/seal"):
        forged = job("x", annotations={**of("ann"), word: "{}"})
        assert "only the daemon may write" in says("ann", *TRY, given=forged)
    account = f"system:serviceaccount:{namespace}:rota"
    made = job("x", labels=of("ann"), annotations={"rota.dev/accepted": "{}"})
    assert "created" in says(account, *CREATE, given=made)
    assert "annotated" in says("ann", "annotate", "tj", "x", "a=b")
    removed = says("ann", "annotate", "tj", "x", "rota.dev/accepted-")
    assert "only the daemon may write" in removed


@pytest.mark.parametrize("name", ["namespace-controller", "generic-garbage-collector"])
def test_controllers_may_delete_jobs(says: Says, namespace: str, name: str) -> None:
    says("ann", *CREATE, given=job("x", labels=of("ann")))
    path = f"/apis/rota.dev/v1alpha1/namespaces/{namespace}/trainingjobs/x"
    assert "Success" in says(f"{CONTROLLERS}{name}", "delete", "--raw", path)


def test_pods_may_not_use_reserved_names_of_the_daemon(says: Says, namespace: str) -> None:
    for what, spec in OF_THE_DAEMON:
        assert f"the {what} rota" in says("ann", *TRY, given=pod("x", spec)), spec
    assert "names that start with rota-" in says("ann", *TRY, given=pod("rota-1-a1-g0-w0"))
    for mark in ("rota.dev/leads", "rota.dev/role", "rota.dev/job"):
        marked = says("ann", *TRY, given=pod("x", labels={mark: "true"}))
        assert f"only the daemon may set on pods: {mark}" in marked
    ours = {"app.kubernetes.io/managed-by": "rota"}
    assert "only the daemon may set on pods" in says("ann", *TRY, given=pod("x", labels=ours))
    other = {"volumes": [{"name": "v", "secret": {"secretName": "mine"}}]}
    assert "created" in says("ann", *TRY, given=pod("x", other, labels={"user": "whoever"}))
    account = f"system:serviceaccount:{namespace}:rota"
    for who in (account, f"{CONTROLLERS}replicaset-controller"):
        made = pod("rota-x", {"serviceAccountName": "rota"}, labels=ours)
        assert "created" in says(who, *TRY, given=made)


@pytest.mark.parametrize("kind", ["Deployment", "Job", "CronJob"])
def test_pod_templates_of_users_are_checked(says: Says, kind: str) -> None:
    """Pods that controllers create from them are not."""

    def made(found: dict[str, Any], name: str = "x") -> str:
        spec: dict[str, Any] = {"template": found}
        if kind == "CronJob":
            spec = {"schedule": "0 0 * * *", "jobTemplate": {"spec": spec}}
        if kind == "Deployment":
            found["spec"]["restartPolicy"] = "Always"
            spec["selector"] = {"matchLabels": {"a": "b"}}
        version = "apps/v1" if kind == "Deployment" else "batch/v1"
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        return says("ann", *TRY, given=body)

    assert "created" in made(template())
    assert "the service account rota" in made(template({"serviceAccountName": "rota"}))
    assert "only the daemon may set on pods: rota.dev/leads" in made(
        template(mark="rota.dev/leads")
    )
    assert "names that start with rota-" in made(template(), "rota-card-x")


def test_ephemeral_containers_are_checked(cluster: Cluster, says: Says, namespace: str) -> None:
    assert "created" in says("ann", *CREATE, given=pod("x"))
    path = f"/api/v1/namespaces/{namespace}/pods/x"

    def add(secret: str) -> str:
        """The response; repeated if the cluster changed the pod at the same time."""
        found = cluster.api.get(path)
        added = {"name": "late", "image": "none", "envFrom": [{"secretRef": {"name": secret}}]}
        found["spec"]["ephemeralContainers"] = [added]
        words = ("replace", "--raw", f"{path}/ephemeralcontainers", "-f", "-")
        said = says("ann", *words, given=found)
        return "" if "has been modified" in said else said

    assert "the secrets rota" in until(lambda: add("rota-state"), "an answer")
    assert '"kind":"Pod"' in until(lambda: add("mine"), "an answer")


def test_the_user_and_labels_of_a_pod_are_protected(says: Says) -> None:
    left = pod("x", {"schedulerName": "rota"}, labels={"user": "ann"})
    assert "created" in says("ann", *CREATE, given=left)
    for word in ("user=ben", "user-"):
        assert "may not create or change pods for ann" in says(
            "ben", "label", "pod", "x", word, "--overwrite"
        )
    assert "labeled" in says("ben", "label", "pod", "x", "a=b"), "a matter of rights to pods"
    assert "only the daemon may set on pods" in says(
        "ann", "label", "pod", "x", "rota.dev/role=placeholder"
    )
    says("", "label", "pod", "x", "rota.dev/job=1")
    assert "only the daemon may set on pods" in says("ann", "label", "pod", "x", "rota.dev/job-")


def test_a_job_in_another_namespace_causes_a_warning(cluster: Cluster, says: Says) -> None:
    made = job("x", labels=of("ann"))
    with cluster.namespace() as elsewhere:
        there = ("--namespace", elsewhere)
        wrong = f"no rota daemon is installed in namespace {elsewhere}"
        until(lambda: wrong in says("", *there, *TRY, given=made), "the warning")
        assert "created" in says("", *there, *TRY, given=made)
    assert "no rota daemon is installed" not in says("ann", *TRY, given=made)
