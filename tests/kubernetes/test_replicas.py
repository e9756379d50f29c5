"""The deployment on real pods: two daemons with the permissions of their account, one leader and
one standby that takes over."""

import os
from pathlib import Path
from typing import Any

import yaml

from rota.server.leader_label import LABEL
from tests.kubernetes.cluster.api import until
from tests.kubernetes.cluster.handle import Cluster, python_pod
from tests.kubernetes.test_deploy import installed, rendered
from tests.tidy.tree import ROOT


def with_our_python(deployment: dict[str, Any]) -> None:
    """There is no image of the daemon here: the test image runs the program of this machine."""
    like = python_pod("like", "")["spec"]
    spec = deployment["spec"]["template"]["spec"]
    [container] = spec["containers"]
    mounted = {each["mountPath"] for each in like["containers"][0]["volumeMounts"]}
    path = [f"{ROOT}/src", f"{ROOT}/trainer/src"]
    path += [each for each in os.environ.get("PYTHONPATH", "").split(":") if each]
    more = [each for each in path if not any(Path(each).is_relative_to(known) for known in mounted)]
    container |= {
        "image": like["containers"][0]["image"],
        "imagePullPolicy": "Never",
        "args": ["-m", "rota.cli.main", *container["args"]],
    }
    container["env"].append({"name": "PYTHONPATH", "value": ":".join(path)})
    container["volumeMounts"] += like["containers"][0]["volumeMounts"]
    spec["volumes"] += like["volumes"]
    for number, folder in enumerate(more):
        name = f"more-{number}"
        container["volumeMounts"].append({"name": name, "mountPath": folder, "readOnly": True})
        spec["volumes"].append({"name": name, "hostPath": {"path": folder}})


def test_the_standby_takes_over_and_the_service_follows(cluster: Cluster, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    endpoints = f"/api/v1/namespaces/{namespace}/endpoints/rota"
    objects = list(yaml.safe_load_all(rendered(cluster, "base", namespace)))
    deployment = next(each for each in objects if each["kind"] == "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    with_our_python(deployment)

    def leaders() -> list[str]:
        found = cluster.api.items(pods)
        return [each["metadata"]["name"] for each in found if LABEL in each["metadata"]["labels"]]

    def n_ready() -> int:
        told = [each["status"].get("containerStatuses", ()) for each in cluster.api.items(pods)]
        return sum(each["ready"] for statuses in told for each in statuses)

    def served_by() -> list[str]:
        subsets = cluster.api.get(endpoints).get("subsets") or ()
        ready = [address for each in subsets for address in each.get("addresses") or ()]
        return [each["targetRef"]["name"] for each in ready]

    with installed(cluster, namespace, yaml.safe_dump_all(objects)):
        until(lambda: n_ready() == 2 and len(leaders()) == 1, "two daemons, one of which commands")
        [first] = leaders()
        until(lambda: served_by() == [first], "the service to lead to it")
        # Like an earlier leader that was lost with its node.
        lost = {**python_pod("lost", ""), "apiVersion": "v1", "kind": "Pod"}
        lost["metadata"]["labels"] = {**labels, LABEL: "true"}
        lost["spec"]["schedulerName"] = "nobody"
        cluster.api.create(pods, lost)
        cluster.api.delete(f"{pods}/{first}", grace_s=0)
        until(lambda: len(served_by()) == 1 and first not in served_by(), "the other to take over")
        until(lambda: "lost" not in leaders(), "the label to go that only the leader removes")
        until(
            lambda: served_by() == [each for each in leaders() if each != first],
            "the service to lead to who has it",
        )
