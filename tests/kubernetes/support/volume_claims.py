"""A claim in a namespace, and the folder of this machine behind its volume."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kubernetes.cluster.api import until
from tests.kubernetes.cluster.handle import Cluster

SIZE = {"storage": "1Gi"}
MODES = ["ReadWriteMany"]


@contextmanager
def volume_claim(
    cluster: Cluster, namespace: str, name: str, *, folder: Path, node: str = ""
) -> Iterator[None]:
    """A bound claim. All users may write to its volume, from this node or from all nodes."""
    folder.mkdir()
    folder.chmod(0o1777)
    volumes = "/api/v1/persistentvolumes"
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    volume: dict[str, Any] = {
        "capacity": SIZE,
        "accessModes": MODES,
        "hostPath": {"path": str(folder)},
        "claimRef": {"namespace": namespace, "name": name},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    if node:
        only = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [only]}]}
        volume["nodeAffinity"] = {"required": terms}
    claim = {"storageClassName": "", "accessModes": MODES, "resources": {"requests": SIZE}}
    called = f"{namespace}-{name}"
    cluster.api.create(volumes, {"metadata": {"name": called}, "spec": volume})
    try:
        cluster.api.create(claims, {"metadata": {"name": name}, "spec": claim})
        until(
            lambda: cluster.api.get(f"{claims}/{name}")["status"].get("phase") == "Bound",
            f"the claim {name}",
        )
        yield
    finally:
        cluster.api.delete(f"{volumes}/{called}")
