"""What a pod asks for that people made themselves, and what is refused by name."""

from typing import Any

import pytest

from rota.core.model import JobId, NodeId, Slot
from rota.engines.base import WorkerId
from rota.engines.kubernetes import names
from rota.engines.kubernetes.api import Cluster
from rota.engines.kubernetes.bodies import body_of, container
from rota.engines.kubernetes.crew import Crew
from rota.engines.kubernetes.endings import Ending
from rota.engines.kubernetes.manifests import Seat
from rota.engines.kubernetes.plain_pods import Asked, PlainPods, asked_of, is_waiting
from rota.errors import UserError
from tests.unit.engines.kubernetes.objects import Object
from tests.unit.engines.kubernetes.test_api import served

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


def test_what_is_understood() -> None:
    found = pod(
        {"user": "ada", "priority": "-3"},
        nodeSelector={"zone": "a"},
        tolerations=[{"key": "team", "value": "vision", "effect": "NoSchedule"}],
        volumes=[{"name": "home", "persistentVolumeClaim": {"claimName": "home-ada"}}],
    )
    assert asked_of(found, gpu_resource=GPU) == Asked(
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
        ({"affinity": {"nodeAffinity": {}}}, "spec.affinity is not understood"),
        ({"topologySpreadConstraints": [{}]}, "spec.topologySpreadConstraints"),
        ({"resourceClaims": [{"name": "x"}]}, "spec.resourceClaims"),
        ({"volumes": [{"name": "scratch", "ephemeral": {"a": 1}}]}, "the volume scratch"),
        ({"containers": [{"name": "a", "ports": [{"hostPort": 80}]}]}, "hostPort"),
        ({"initContainers": [{"name": "a", "ports": [{"hostPort": 80}]}]}, "hostPort"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        asked_of(pod(**spec), gpu_resource=GPU)


def test_a_priority_is_a_number() -> None:
    with pytest.raises(UserError, match="priority=high"):
        asked_of(pod({"priority": "high"}), gpu_resource=GPU)


def test_only_what_is_free_and_ours_waits_for_us() -> None:
    assert is_waiting(pod())
    assert not is_waiting(pod(schedulerName="default-scheduler"))
    assert not is_waiting(pod(nodeName="n1"))
    assert not is_waiting(pod(schedulingGates=[{"name": "later"}]))


def test_the_container_that_failed_is_the_one_that_counts() -> None:
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
    assert body_of(found, WorkerId(JobId("a"), 1, 0)).is_plain


def brought_up(found: Object, attempt: int) -> tuple[list[str], list[Ending]]:
    """What was asked for when a pod is to run as this attempt, and the verdicts."""
    crew, verdicts = Crew(), list[Ending]()

    def see(pod: Object) -> None:
        if worker := names.worker_of(pod):
            crew.see(pod, worker)

    def give_up(_: WorkerId, ending: Ending) -> None:
        verdicts.append(ending)

    async def play(cluster: Cluster) -> None:
        seat = Seat(WorkerId(JobId("job"), attempt, 0), 0, 0, 1, Slot(NodeId("n1"), (0,)))
        plain = PlainPods(cluster, crew, see=see, give_up=give_up)
        await plain.bring_up(seat, f"mine/{found['metadata']['uid']}")

    return served([(200, found)], play), verdicts


def bound(**status: Any) -> Object:
    """By the first attempt."""
    found = pod(nodeName="n1")
    notes = {names.PLACED: "job/1/0/u1"}
    found["metadata"] |= {"uid": "u1", "resourceVersion": "1", "annotations": notes}
    return found | {"status": status}


def test_a_pod_that_its_node_refused_is_not_waited_for_in_another_attempt() -> None:
    refused = bound(phase="Failed", reason="OutOfcpu", message="no room")
    asked, [verdict] = brought_up(refused, attempt=2)
    assert len(asked) == 1
    assert verdict.code == 126
    assert verdict.reason.startswith("its node has had its pod: OutOfcpu: no room; ")


def test_a_pod_that_was_bound_by_the_same_order_is_found() -> None:
    asked, verdicts = brought_up(bound(phase="Running"), attempt=1)
    assert len(asked) == 1
    assert verdicts == []
