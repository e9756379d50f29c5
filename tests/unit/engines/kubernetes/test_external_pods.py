"""Requests of external pods, and fields that are refused."""

from typing import Any

import pytest

from rota.core.model.allocation import Slot
from rota.core.model.job import JobId
from rota.core.model.node import NodeId
from rota.engines.interface import WorkerId
from rota.engines.kubernetes.external_pods import (
    ExternalPodBinder,
    ExternalPodRequest,
    external_pod_request,
    is_waiting,
)
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.placement import PodPlacement
from rota.engines.kubernetes.pods.state import container, pod_state_of
from rota.engines.kubernetes.pods.termination import PodTermination
from rota.engines.kubernetes.pods.tracker import PodTracker
from rota.errors import UserError
from rota.kube.client import KubeClient
from tests.support.kube_objects import Object
from tests.unit.kube.test_client import served

GPU = "nvidia.com/gpu"


def pod(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    limits = {GPU: "2", "cpu": "500m", "memory": "1Gi"}
    main = {
        "name": "main",
        "command": ["python"],
        "args": ["a.py"],
        "resources": {"limits": limits},
    }
    return {
        "metadata": {"name": "mine", "labels": labels or {}},
        "spec": {"schedulerName": "rota", "containers": [main], **spec},
    }


def test_supported_fields() -> None:
    found = pod(
        {"user": "ada", "priority": "-3"},
        nodeSelector={"zone": "a"},
        tolerations=[{"key": "team", "value": "vision", "effect": "NoSchedule"}],
        volumes=[{"name": "home", "persistentVolumeClaim": {"claimName": "home-ada"}}],
    )
    assert external_pod_request(found, gpu_resource=GPU) == ExternalPodRequest(
        user="ada",
        priority=-3,
        gpus=2,
        cpus=0.5,
        memory_bytes=2**30,
        node_labels={"zone": "a"},
        command=["python", "a.py"],
        claims=("home-ada",),
        tolerations=frozenset({"team=vision:NoSchedule"}),
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"affinity": {"nodeAffinity": {}}}, "spec.affinity is not supported"),
        ({"topologySpreadConstraints": [{}]}, "spec.topologySpreadConstraints"),
        ({"resourceClaims": [{"name": "x"}]}, "spec.resourceClaims"),
        ({"volumes": [{"name": "scratch", "ephemeral": {"a": 1}}]}, "the ephemeral volume scratch"),
        ({"containers": [{"name": "a", "ports": [{"hostPort": 80}]}]}, "hostPort"),
        ({"initContainers": [{"name": "a", "ports": [{"hostPort": 80}]}]}, "hostPort"),
    ],
)
def test_an_unsupported_field_is_refused_by_name(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        external_pod_request(pod(**spec), gpu_resource=GPU)


def test_a_priority_is_an_integer() -> None:
    with pytest.raises(UserError, match="priority=high"):
        external_pod_request(pod({"priority": "high"}), gpu_resource=GPU)


def test_only_unbound_pods_of_our_scheduler_wait() -> None:
    assert is_waiting(pod())
    assert not is_waiting(pod(schedulerName="default-scheduler"))
    assert not is_waiting(pod(nodeName="n1"))
    assert not is_waiting(pod(schedulingGates=[{"name": "later"}]))


def test_a_failed_container_is_the_main_container() -> None:
    found = pod()
    meta = {"uid": "u", "resourceVersion": "1"}
    found["metadata"] |= meta
    found["status"] = {
        "phase": "Failed",
        "containerStatuses": [
            {"name": "main", "state": {"terminated": {"exitCode": 0}}},
            {"name": "side", "state": {"terminated": {"exitCode": 3}}},
        ],
    }
    assert container(found)["name"] == "side"
    assert pod_state_of(found, WorkerId(JobId("a"), 1, 0)).is_external


def brought_up(found: Object, attempt: int) -> tuple[list[str], list[PodTermination]]:
    """What was asked for when a pod is to run as this attempt, and the verdicts."""
    pod_tracker, verdicts = PodTracker(), list[PodTermination]()

    def see(pod: Object) -> None:
        if worker := naming.worker_of(pod):
            pod_tracker.see(pod, worker)

    def give_up(_: WorkerId, termination: PodTermination) -> None:
        verdicts.append(termination)

    async def play(cluster: KubeClient) -> None:
        placement = PodPlacement(
            WorkerId(JobId("job"), attempt, 0), 0, 0, (Slot(NodeId("n1"), (0,)),)
        )
        plain = ExternalPodBinder(cluster, pod_tracker, see=see, give_up=give_up)
        await plain.launch(placement, f"mine/{found['metadata']['uid']}")

    return served([(200, found)], play), verdicts


def bound(**status: Any) -> Object:
    """By the first attempt."""
    found = pod(nodeName="n1")
    notes = {naming.PLACED: "job/1/0/u1"}
    found["metadata"] |= {"uid": "u1", "resourceVersion": "1", "annotations": notes}
    return found | {"status": status}


def test_a_pod_refused_by_its_node_ends_the_next_attempt() -> None:
    refused = bound(phase="Failed", reason="OutOfcpu", message="no room")
    asked, [verdict] = brought_up(refused, attempt=2)
    assert len(asked) == 1
    assert verdict.code == 126
    assert verdict.reason.startswith("its pod was already bound to a node: OutOfcpu: no room; ")


def test_a_pod_bound_by_the_same_command_is_found() -> None:
    asked, verdicts = brought_up(bound(phase="Running"), attempt=1)
    assert len(asked) == 1
    assert verdicts == []
