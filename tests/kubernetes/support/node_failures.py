"""Mark a node with a stopped kubelet as unreachable, without waiting for the controllers."""

from tests.kubernetes.cluster.api import Api, until
from tests.kubernetes.cluster.kwok_nodes import NODES

UNREACHABLE = {
    "type": "Ready",
    "status": "Unknown",
    "reason": "NodeStatusUnknown",
    "message": "gone",
}


def mark_unreachable(api: Api, node: str) -> None:
    """Set what the controllers would set after a while."""
    path = f"{NODES}/{node}"
    conditions = api.get(path)["status"]["conditions"]
    others = [each for each in conditions if each["type"] != "Ready"]
    api.patch(f"{path}/status", {"status": {"conditions": [*others, UNREACHABLE]}})
    until(lambda: api.get(path)["spec"].get("taints"), "the taint")
