"""Pods that name rota as their scheduler, on nodes that pretend to run them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubernetes.cluster.api import until
from tests.kubernetes.cluster.fakes import fake_nodes
from tests.kubernetes.cluster.handle import Cluster, remove_pods
from tests.kubernetes.cluster.locks import locked
from tests.kubernetes.conftest import use_of
from tests.kubernetes.daemons import PATIENCE_S, Daemon, Lab, open_lab

GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def lab(running_cluster: Cluster) -> Iterator[Lab]:
    """Nobody else's jobs may be sent to nodes that only pretend."""
    with (
        locked(use_of(running_cluster)),
        running_cluster.namespace() as namespace,
        open_lab(running_cluster, namespace) as opened,
    ):
        yield opened


@pytest.fixture(scope="module")
def leaders() -> list[Daemon]:
    """One after the other."""
    return []


@pytest.fixture
def daemon(lab: Lab, leaders: list[Daemon]) -> Daemon:
    if not leaders:
        leaders.append(lab.daemon().leads())
    return leaders[-1]


@pytest.fixture
def node(lab: Lab) -> Iterator[str]:
    """With two GPUs. What runs there ends before the node does, which ends it."""
    with lab.cluster.kwok_nodes(1, gpus=2) as [name]:
        yield name
        remove_pods(lab.cluster.api, pods(lab))


def make(lab: Lab, name: str, *, node: str, **more: Any) -> None:
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


def pods(lab: Lab) -> str:
    return f"/api/v1/namespaces/{lab.namespace}/pods"


def node_of(lab: Lab, name: str) -> str:
    return lab.cluster.api.get(f"{pods(lab)}/{name}")["spec"].get("nodeName", "")


def events_of(lab: Lab, name: str) -> str:
    about = f"involvedObject.name={name}"
    return lab.kubectl("get", "events", "--field-selector", about, "--no-headers")


def test_they_are_queued_bound_and_told_why_they_wait(lab: Lab, daemon: Daemon, node: str) -> None:
    make(lab, "first", node=node)
    until(lambda: node_of(lab, "first") == node, "the first pod bound", limit_s=PATIENCE_S)
    make(lab, "second", node=node)
    waits = until(lambda: events_of(lab, "second"), "a reason", limit_s=PATIENCE_S)
    assert "Waiting" in waits
    assert node_of(lab, "second") == ""
    jobs = {each["name"]: each for each in daemon.ask("GET", "/v1/jobs")["jobs"]}
    assert {jobs[name]["user"] for name in ("first", "second")} == {"ada"}
    lab.kubectl("delete", "pod", "first", "--wait=false")
    until(lambda: node_of(lab, "second") == node, "the second pod bound", limit_s=PATIENCE_S)
    assert daemon.job(jobs["first"]["id"])["state"] == "cancelled"


def test_what_is_not_understood_is_refused_by_name(lab: Lab, daemon: Daemon, node: str) -> None:
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    make(lab, "spread", node=node, topologySpreadConstraints=[spread])
    claim = {"name": "home", "persistentVolumeClaim": {"claimName": "nobodys"}}
    make(lab, "homeless", node=node, volumes=[claim])
    said = until(lambda: events_of(lab, "spread"), "a refusal", limit_s=PATIENCE_S)
    assert "spec.topologySpreadConstraints is not understood" in said
    said = until(lambda: events_of(lab, "homeless"), "a refusal", limit_s=PATIENCE_S)
    assert "there is no claim nobodys" in said
    names = {each["name"] for each in daemon.ask("GET", "/v1/jobs")["jobs"]}
    assert names.isdisjoint({"spread", "homeless"})


@pytest.mark.usefixtures("daemon")
def test_a_claim_that_comes_later_is_waited_for(lab: Lab, node: str) -> None:
    """As when both are in one file."""
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
    until(lambda: "no claim home" in events_of(lab, "claims"), "a reason", limit_s=PATIENCE_S)
    lab.cluster.api.create("/api/v1/persistentvolumes", volume)
    try:
        path = f"/api/v1/namespaces/{lab.namespace}/persistentvolumeclaims"
        lab.cluster.api.create(path, claim)
        until(lambda: node_of(lab, "claims") == node, "the pod bound", limit_s=PATIENCE_S)
    finally:
        lab.cluster.api.delete(f"/api/v1/persistentvolumes/{volume['metadata']['name']}")


@pytest.mark.usefixtures("daemon")
def test_a_node_that_comes_later_is_waited_for(lab: Lab) -> None:
    """As when somebody adds nodes because pods wait for them."""
    make(lab, "early", node="later-0000")
    until(lambda: "no node is labelled" in events_of(lab, "early"), "a reason", limit_s=PATIENCE_S)
    with fake_nodes(lab.cluster.api, 1, gpus=2, prefix="later") as [node]:
        until(lambda: node_of(lab, "early") == node, "the pod bound", limit_s=PATIENCE_S)
        remove_pods(lab.cluster.api, pods(lab))


def test_a_pod_is_placed_once_whoever_leads(
    lab: Lab, daemon: Daemon, leaders: list[Daemon], node: str
) -> None:
    make(lab, "one", node=node)
    until(lambda: node_of(lab, "one") == node, "the pod bound", limit_s=PATIENCE_S)
    before = daemon.jobs()
    daemon.kill()
    lab.give_up_lease()
    leaders.append(second := lab.daemon().leads())
    make(lab, "two", node=node)
    until(lambda: len(second.jobs()) == len(before) + 1, "the second pod", limit_s=PATIENCE_S)
    assert set(before) < set(second.jobs())
    assert node_of(lab, "two") == ""


def test_a_tainted_node_is_for_those_who_tolerate_that(
    lab: Lab, daemon: Daemon, leaders: list[Daemon], node: str
) -> None:
    """Be it a pod of somebody's, or all of ours by the settings."""
    taint = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    lab.cluster.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})
    until(lambda: is_closed(daemon, node), "the taint to be known", limit_s=PATIENCE_S)
    make(lab, "stranger", node=node, gpus=1, tolerations=[])
    make(lab, "member", node=node, gpus=1, tolerations=[taint])
    place = {"kubernetes.io/hostname": node}
    job = daemon.submit(gpus="1", node_labels=place, hold=False)
    until(lambda: node_of(lab, "member") == node, "the pod bound", limit_s=PATIENCE_S)
    said = until(lambda: events_of(lab, "stranger"), "a reason", limit_s=PATIENCE_S)
    assert "drained or cordoned node" in said
    assert (node_of(lab, "stranger"), daemon.jobs()[job]) == ("", "queued")
    daemon.end()
    leaders.append(second := lab.daemon(tolerations=["team=vision"]).leads())
    until(lambda: second.jobs()[job] == "running", "the job to run", limit_s=PATIENCE_S)
    [ours] = lab.cluster.api.items(f"{pods(lab)}?labelSelector=rota.dev/job={job}")
    assert (ours["spec"]["nodeName"], node_of(lab, "member")) == (node, node)
    second.ask("POST", f"/v1/jobs/{job}/cancel")


def is_closed(daemon: Daemon, node: str) -> bool:
    return any(each["is_cordoned"] for each in daemon.ask("GET", "/v1/nodes") if each["id"] == node)
