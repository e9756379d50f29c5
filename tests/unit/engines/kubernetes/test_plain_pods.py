"""What a pod asks for that people made themselves, and what is refused by name."""

from typing import Any

import pytest

from rota.core.model import JobId
from rota.engines.base import WorkerId
from rota.engines.kubernetes.bodies import body_of, container
from rota.engines.kubernetes.plain_pods import Asked, asked_of, is_waiting
from rota.errors import UserError

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
