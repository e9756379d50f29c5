"""Pods that name rota as their scheduler, on simulated nodes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.kubernetes.cluster.api import RefusedError, until
from tests.kubernetes.cluster.file_locks import locked
from tests.kubernetes.cluster.handle import Cluster, remove_pods
from tests.kubernetes.cluster.kwok_nodes import fake_nodes
from tests.kubernetes.support.cluster_locks import use_of
from tests.kubernetes.support.daemons import Daemon, DaemonLab, open_daemon_lab

GPU = "nvidia.com/gpu"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{ADMISSION}/validatingadmissionpolicies"
BINDINGS = f"{ADMISSION}/validatingadmissionpolicybindings"


@pytest.fixture(scope="module")
def lab(running_cluster: Cluster) -> Iterator[DaemonLab]:
    """Exclusive, so that jobs of other tests are not placed on simulated nodes."""
    with (
        locked(use_of(running_cluster)),
        running_cluster.namespace() as namespace,
        open_daemon_lab(running_cluster, namespace) as opened,
    ):
        yield opened


@pytest.fixture(scope="module")
def leaders() -> list[Daemon]:
    """One after the other."""
    return []


@pytest.fixture
def daemon(lab: DaemonLab, leaders: list[Daemon]) -> Daemon:
    if not leaders:
        leaders.append(lab.daemon().leads())
    return leaders[-1]


@pytest.fixture
def node(lab: DaemonLab) -> Iterator[str]:
    """A node with two GPUs. Its pods are deleted before the node."""
    with lab.cluster.kwok_nodes(1, gpus=2) as [name]:
        yield name
        remove_pods(lab.cluster.api, pods(lab))


@contextmanager
def no_more_jobs(lab: DaemonLab, words: str) -> Iterator[None]:
    """The cluster admits no further TrainingJob to this namespace."""
    rule = {
        "apiGroups": ["rota.dev"],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["trainingjobs"],
    }
    ours = {"matchLabels": {"kubernetes.io/metadata.name": lab.namespace}}
    spec = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": ours},
        "validations": [{"expression": "false", "message": words}],
    }
    binding = {"policyName": lab.namespace, "validationActions": ["Deny"]}
    api, meta = lab.cluster.api, {"metadata": {"name": lab.namespace}}
    api.create(POLICIES, meta | {"spec": spec})
    api.create(BINDINGS, meta | {"spec": binding})
    trial: dict[str, Any] = {"apiVersion": "rota.dev/v1alpha1", "kind": "TrainingJob"}
    trial |= {"metadata": {"name": "trial"}, "spec": {"command": ["p"]}}
    try:
        until(lambda: words in _refusal(lab, trial), "the policy to hold")
        yield
    finally:
        api.delete(f"{BINDINGS}/{lab.namespace}")
        api.delete(f"{POLICIES}/{lab.namespace}")


def _refusal(lab: DaemonLab, body: dict[str, Any]) -> str:
    try:
        lab.cluster.api.create(f"{lab.objects}?dryRun=All", body)
    except RefusedError as error:
        return str(error)
    return ""


def make(lab: DaemonLab, name: str, *, node: str, **more: Any) -> None:
    labels = {"user": "ada", "priority": str(more.pop("priority", 0))}
    main = {
        "name": "main",
        "image": "none",
        "command": ["sleep", "1000"],
        "resources": {"limits": {GPU: str(more.pop("gpus", 2))}},
    }
    spec = {
        "schedulerName": "rota",
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"operator": "Exists"}],
        "containers": [main],
        **more,
    }
    meta = {"name": name, "labels": labels}
    lab.cluster.api.create(pods(lab), {"metadata": meta, "spec": spec})


def pods(lab: DaemonLab) -> str:
    return f"/api/v1/namespaces/{lab.namespace}/pods"


def node_of(lab: DaemonLab, name: str) -> str:
    return lab.cluster.api.get(f"{pods(lab)}/{name}")["spec"].get("nodeName", "")


def names_of(lab: DaemonLab) -> list[str]:
    return [each["metadata"]["name"] for each in lab.cluster.api.items(pods(lab))]


def events_of(lab: DaemonLab, name: str) -> str:
    about = f"involvedObject.name={name}"
    return lab.kubectl("get", "events", "--field-selector", about, "--no-headers")


def test_pods_are_queued_and_bound_and_get_events(
    lab: DaemonLab, daemon: Daemon, node: str
) -> None:
    make(lab, "first", node=node)
    until(lambda: node_of(lab, "first") == node, "the first pod bound")
    make(lab, "second", node=node)
    waits = until(lambda: events_of(lab, "second"), "a reason")
    assert "Waiting" in waits
    assert node_of(lab, "second") == ""
    jobs = {each["name"]: each for each in daemon.ask("GET", "/v1/jobs")["jobs"]}
    assert {jobs[name]["user"] for name in ("first", "second")} == {"ada"}
    lab.kubectl("delete", "pod", "first", "--wait=false")
    until(lambda: node_of(lab, "second") == node, "the second pod bound")
    assert daemon.job(jobs["first"]["id"])["state"] == "cancelled"


@pytest.mark.usefixtures("daemon")
def test_pod_of_higher_priority_gets_its_selected_node_although_others_are_free(
    lab: DaemonLab,
) -> None:
    with lab.cluster.kwok_nodes(2, gpus=2) as [wanted, _]:
        make(lab, "low", node=wanted)
        until(lambda: node_of(lab, "low") == wanted, "the pod bound")
        make(lab, "high", node=wanted, priority=7)
        until(lambda: node_of(lab, "high") == wanted, "the node for it")
        assert "preempted" in events_of(lab, "low")
        remove_pods(lab.cluster.api, pods(lab))


def test_a_stopped_pod_gets_an_event(lab: DaemonLab, daemon: Daemon, node: str) -> None:
    make(lab, "moved", node=node)
    until(lambda: node_of(lab, "moved") == node, "the pod bound")
    daemon.ask("POST", f"/v1/nodes/{node}/drain")
    until(lambda: "Stopped" in events_of(lab, "moved"), "a reason")
    assert "is drained: its pod is deleted" in events_of(lab, "moved")
    [job] = [each for each in daemon.ask("GET", "/v1/jobs")["jobs"] if each["name"] == "moved"]
    assert "preempted" in job["reason"]
    until(lambda: daemon.job(job["id"])["state"] == "cancelled", "its end")


def test_unsupported_fields_are_refused_by_name(lab: DaemonLab, daemon: Daemon, node: str) -> None:
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    make(lab, "spread", node=node, topologySpreadConstraints=[spread])
    claim = {"name": "home", "persistentVolumeClaim": {"claimName": "nobodys"}}
    make(lab, "homeless", node=node, volumes=[claim])
    said = until(lambda: events_of(lab, "spread"), "a refusal")
    assert "spec.topologySpreadConstraints is not supported" in said
    said = until(lambda: events_of(lab, "homeless"), "a refusal")
    assert "the claim nobodys does not exist" in said
    names = {each["name"] for each in daemon.ask("GET", "/v1/jobs")["jobs"]}
    assert names.isdisjoint({"spread", "homeless"})


@pytest.mark.usefixtures("daemon")
def test_a_copy_of_a_pod_is_a_job_of_its_own(lab: DaemonLab, daemon: Daemon, node: str) -> None:
    """With all labels and annotations of the first, as `kubectl get -o yaml` shows them."""
    make(lab, "original", node=node, gpus=1)
    until(lambda: node_of(lab, "original"), "a place")
    found = lab.cluster.api.get(f"{pods(lab)}/original")
    meta = {"name": "copy", **{key: found["metadata"][key] for key in ("labels", "annotations")}}
    spec = {**found["spec"], "nodeName": None}
    lab.cluster.api.create(pods(lab), {"metadata": meta, "spec": spec})
    until(lambda: node_of(lab, "copy") == node, "a place for the copy")

    def run() -> bool:
        told = daemon.ask("GET", "/v1/jobs", params={"limit": 1000})["jobs"]
        states = {each["name"]: each["state"] for each in told}
        return (states["original"], states["copy"]) == ("running", "running")

    until(run, "both to run")
    lab.cluster.api.delete(f"{pods(lab)}/copy")
    until(lambda: "copy" not in names_of(lab), "the copy to go")
    assert "original" in names_of(lab)


def test_pod_waits_for_a_claim_that_is_created_later(lab: DaemonLab, node: str) -> None:
    """Pod and claim may be created from one file."""
    size = {"storage": "1Gi"}
    volume = {
        "metadata": {"name": f"{lab.namespace}-home"},
        "spec": {
            "capacity": size,
            "accessModes": ["ReadWriteMany"],
            "hostPath": {"path": "/tmp"},
            "claimRef": {"namespace": lab.namespace, "name": "home"},
        },
    }
    claim = {
        "metadata": {"name": "home"},
        "spec": {
            "storageClassName": "",
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": size},
        },
    }
    wanted = {"name": "home", "persistentVolumeClaim": {"claimName": "home"}}
    make(lab, "claims", node=node, volumes=[wanted])
    until(lambda: "the claim home does not exist" in events_of(lab, "claims"), "a reason")
    lab.cluster.api.create("/api/v1/persistentvolumes", volume)
    try:
        path = f"/api/v1/namespaces/{lab.namespace}/persistentvolumeclaims"
        lab.cluster.api.create(path, claim)
        until(lambda: node_of(lab, "claims") == node, "the pod bound")
    finally:
        lab.cluster.api.delete(f"/api/v1/persistentvolumes/{volume['metadata']['name']}")


def test_a_pod_whose_job_cannot_be_stored_waits_alone(
    lab: DaemonLab, daemon: Daemon, node: str
) -> None:
    own = daemon.submit()
    with no_more_jobs(lab, "the lab is closed"):
        make(lab, "many", node=node)
        until(lambda: "the lab is closed" in events_of(lab, "many"), "a reason")
        with pytest.raises(AssertionError, match="the lab is closed"):
            daemon.submit()
        assert "disk failed" not in daemon.log()
    until(lambda: node_of(lab, "many") == node, "the pod bound")
    daemon.ask("POST", f"/v1/jobs/{own}/cancel")


@pytest.mark.usefixtures("daemon")
def test_pod_waits_for_a_node_that_is_added_later(lab: DaemonLab) -> None:
    """A cluster autoscaler adds such nodes."""
    make(lab, "early", node="later-0000")
    until(lambda: "no node has it" in events_of(lab, "early"), "a reason")
    with fake_nodes(lab.cluster.api, 1, gpus=2, prefix="later") as [node]:
        until(lambda: node_of(lab, "early") == node, "the pod bound")
        remove_pods(lab.cluster.api, pods(lab))


def test_pod_is_placed_once_across_a_change_of_the_leader(
    lab: DaemonLab, daemon: Daemon, leaders: list[Daemon], node: str
) -> None:
    make(lab, "one", node=node)
    until(lambda: node_of(lab, "one") == node, "the pod bound")
    before = daemon.jobs()
    daemon.kill()
    lab.give_up_lease()
    leaders.append(second := lab.daemon().leads())
    make(lab, "two", node=node)
    until(lambda: len(second.jobs()) == len(before) + 1, "the second pod")
    assert set(before) < set(second.jobs())
    assert node_of(lab, "two") == ""


def test_a_tainted_node_is_for_tolerating_pods(
    lab: DaemonLab, daemon: Daemon, leaders: list[Daemon], node: str
) -> None:
    """For an external pod, and for all our pods by the settings."""
    taint = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    lab.cluster.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})
    until(lambda: is_closed(daemon, node), "the taint to be known")
    make(lab, "stranger", node=node, gpus=1, tolerations=[])
    make(lab, "member", node=node, gpus=1, tolerations=[taint])
    place = {"kubernetes.io/hostname": node}
    job = daemon.submit(gpus="1", node_labels=place, hold=False)
    until(lambda: node_of(lab, "member") == node, "the pod bound")
    said = until(lambda: events_of(lab, "stranger"), "a reason")
    assert "drained or cordoned node" in said
    assert (node_of(lab, "stranger"), daemon.jobs()[job]) == ("", "queued")
    daemon.end()
    leaders.append(second := lab.daemon(tolerations=["team=vision"]).leads())
    until(lambda: second.jobs()[job] == "running", "the job to run")
    [ours] = lab.cluster.api.items(f"{pods(lab)}?labelSelector=rota.dev/job={job}")
    assert (ours["spec"]["nodeName"], node_of(lab, "member")) == (node, node)
    second.ask("POST", f"/v1/jobs/{job}/cancel")


def is_closed(daemon: Daemon, node: str) -> bool:
    return any(each["is_cordoned"] for each in daemon.ask("GET", "/v1/nodes") if each["id"] == node)
