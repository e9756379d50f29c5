"""Pods and nodes as an API server would tell of them, in few words."""

from __future__ import annotations

from typing import Any

from rota.core.model.job import JobId
from rota.engines.interface import WorkerId
from rota.engines.kubernetes.pods import naming

Object = dict[str, Any]
WORKER = WorkerId(JobId("job"), 1, 0)


def pod(
    phase: str = "Pending",
    *,
    worker: WorkerId = WORKER,
    meta: Object | None = None,
    spec: Object | None = None,
    status: Object | None = None,
) -> Object:
    """A pod of ours; what is given goes on top of what is usual."""
    name = naming.pod_name(worker, 0)
    labels = {
        naming.MANAGED_BY: "rota",
        naming.JOB: worker.job_id,
        naming.ATTEMPT: str(worker.attempt),
        naming.WORKER: str(worker.worker),
    }
    usual: Object = {
        "name": name,
        "namespace": "lab",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "labels": labels,
        "annotations": {naming.NODE: "n1", naming.GPUS: "0"},
        "finalizers": [naming.FINALIZER],
    }
    said = {"ROTA_WORKER": f"{worker.job_id}/{worker.attempt}/{worker.worker}"}
    env = [
        {"name": key, "value": value} for key, value in (said | {"ROTA_GENERATION": "0"}).items()
    ]
    containers = [{"name": naming.CONTAINER, "image": "i", "env": env}]
    return {
        "metadata": usual | (meta or {}),
        "spec": {"containers": containers} | (spec or {}),
        "status": {"phase": phase} | (status or {}),
    }


def foreign(
    name: str, node: str = "n1", *, gpus: int = 0, cpu: str = "0", phase: str = "Running"
) -> Object:
    asked = {"cpu": cpu, "nvidia.com/gpu": str(gpus)}
    return {
        "metadata": {"name": name, "namespace": "theirs", "uid": name, "resourceVersion": "1"},
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": asked}}]},
        "status": {"phase": phase},
    }


def node(
    name: str = "n1",
    *,
    gpus: int = 8,
    capacity: int | None = None,
    ready: str = "True",
    taints: tuple[Object, ...] = (),
    is_cordoned: bool = False,
) -> Object:
    amounts = {"cpu": "32", "memory": "64Gi", "pods": "110"}
    labels = {"nvidia.com/gpu.product": "A100", "nvidia.com/gpu.memory": "40960"}
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels},
        "spec": {"taints": list(taints)} | ({"unschedulable": True} if is_cordoned else {}),
        "status": {
            "allocatable": amounts | {"nvidia.com/gpu": str(gpus)},
            "capacity": amounts | {"nvidia.com/gpu": str(gpus if capacity is None else capacity)},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def container(**state: Object) -> Object:
    """The status of the worker's container."""
    return {"containerStatuses": [{"name": naming.CONTAINER, "state": state}]}


def condition(kind: str, **words: str) -> Object:
    return {"conditions": [{"type": kind, **words}]}
