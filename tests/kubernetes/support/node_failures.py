"""What a cluster says of a node whose kubelet is stopped, without the wait until it says so."""

from tests.kubernetes.cluster.api import Api, until
from tests.kubernetes.cluster.fakes import NODES

SILENT = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "gone"}


def falls_silent(api: Api, node: str) -> None:
    """So the controllers would say it, after a while."""
    path = f"{NODES}/{node}"
    conditions = api.get(path)["status"]["conditions"]
    others = [each for each in conditions if each["type"] != "Ready"]
    api.patch(f"{path}/status", {"status": {"conditions": [*others, SILENT]}})
    until(lambda: api.get(path)["spec"].get("taints"), "the taint")
