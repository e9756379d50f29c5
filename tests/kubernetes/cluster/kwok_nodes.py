"""Simulated nodes: KWOK plays their kubelets."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.kubernetes.cluster.api import Api, Object, until
from tests.kubernetes.cluster.components import GPU_MEMORY_MIB, GPU_PRODUCT
from tests.kubernetes.cluster.layout import GPU_RESOURCE

NODES = "/api/v1/nodes"
N_AT_ONCE = 8
READY_LIMIT_S = 120.0
RESOURCES = {"cpu": "128", "memory": "1024Gi", "pods": "256", "ephemeral-storage": "1Ti"}


@contextmanager
def fake_nodes(api: Api, n: int, *, gpus: int = 8, prefix: str = "fake") -> Iterator[list[str]]:
    """Nodes with a number of GPUs each, ready; removed at the end."""
    names = [f"{prefix}-{number:04}" for number in range(n)]
    try:
        in_parallel(lambda name: api.create(NODES, fake_node(name, gpus)), names)
        until(lambda: set(names) <= ready_nodes(api), f"{n} fake nodes", limit_s=READY_LIMIT_S)
        yield names
    finally:
        in_parallel(lambda name: api.delete(f"{NODES}/{name}"), names)


def in_parallel(action: Callable[[str], object], names: list[str]) -> None:
    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        list(pool.map(action, names))


def fake_node(name: str, gpus: int) -> Object:
    resources = RESOURCES | {GPU_RESOURCE: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "rota.test/fake": "true",
                f"{GPU_RESOURCE}.product": GPU_PRODUCT,
                f"{GPU_RESOURCE}.memory": str(GPU_MEMORY_MIB),
            },
        },
        "status": {"capacity": resources, "allocatable": resources},
    }


def ready_nodes(api: Api) -> set[str]:
    return {node["metadata"]["name"] for node in api.items(NODES) if is_ready(node)}


def is_ready(node: Object) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
