"""The test cluster works, and its parts can be stopped."""

from contextlib import suppress
from http.client import IncompleteRead

import pytest

from tests.kubernetes.cluster.api import Api, Object, RefusedError, until
from tests.kubernetes.cluster.handle import Cluster, python_pod
from tests.kubernetes.cluster.kwok_nodes import NODES, is_ready
from tests.kubernetes.cluster.layout import CARDS_PER_NODE, NODE
from tests.support.seed_counts import only_long

TORCH = "import os, torch; print(os.environ['NVIDIA_VISIBLE_DEVICES'], torch.ones(2).sum().item())"


def run_to_end(cluster: Cluster, namespace: str, pod: Object) -> str:
    """The output of the pod, once it has ended."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    path = f"{pods}/{pod['metadata']['name']}"
    cluster.api.create(pods, pod)
    until(lambda: is_over(cluster.api.get(path)), f"the end of {path}")
    printed = cluster.api.text(f"{path}/log")
    assert cluster.api.get(path)["status"]["phase"] == "Succeeded", printed
    return printed


def is_over(pod: Object) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def test_node_has_the_gpus_of_its_device_plugin(cluster: Cluster) -> None:
    node = cluster.api.get(f"{NODES}/{NODE}")
    assert is_ready(node)
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == str(CARDS_PER_NODE)
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB"
    assert node["metadata"]["labels"]["nvidia.com/gpu.memory"] == "40960"


def test_pod_runs_the_project_python_and_gets_a_gpu(cards: Cluster, namespace: str) -> None:
    printed = run_to_end(cards, namespace, python_pod("torch", TORCH, gpus=1))
    uuid, total = printed.split()
    assert uuid.startswith("GPU-0000000")
    assert total == "2.0"


def test_two_pods_get_different_gpus(cards: Cluster, namespace: str) -> None:
    """The first pod still runs when the second gets its GPU."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    holding = (
        "import os, time; print(os.environ['NVIDIA_VISIBLE_DEVICES'], flush=True); time.sleep(99)"
    )
    cards.api.create(pods, python_pod("holder", holding, gpus=1))
    held = until(lambda: cards.api.text(f"{pods}/holder/log").strip(), "the first card")
    says = "import os; print(os.environ['NVIDIA_VISIBLE_DEVICES'])"
    assert run_to_end(cards, namespace, python_pod("second", says, gpus=1)).strip() != held


def test_a_pod_reaches_this_machine_and_the_api_server(cluster: Cluster, namespace: str) -> None:
    """This machine by the cluster's host address, the API server by its service, without DNS."""
    program = """
import os, urllib.request, ssl
host = os.environ["KUBERNETES_SERVICE_HOST"]
account = "/var/run/secrets/kubernetes.io/serviceaccount"
trust = ssl.create_default_context(cafile=f"{account}/ca.crt")
print(urllib.request.urlopen(f"https://{host}/version", context=trust, timeout=10).status)
"""
    assert run_to_end(cluster, namespace, python_pod("caller", program)) == "200\n"


def test_simulated_nodes_become_ready_and_are_removed(whole_cluster: Cluster) -> None:
    with whole_cluster.kwok_nodes(20, gpus=8) as names:
        nodes = {each["metadata"]["name"]: each for each in whole_cluster.api.items(NODES)}
        assert [nodes[name]["status"]["allocatable"]["nvidia.com/gpu"] for name in names] == (
            ["8"] * 20
        )
    left = {each["metadata"]["name"] for each in whole_cluster.api.items(NODES)}
    assert left == {NODE}


def test_user_has_only_the_granted_permissions(cluster: Cluster, namespace: str) -> None:
    name, kubeconfig = cluster.person()
    theirs = Api(kubeconfig)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with pytest.raises(RefusedError, match=f"403.*{name}"):
        theirs.get(pods)
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    binding = {"metadata": {"name": "viewer"}, "roleRef": role, "subjects": [subject]}
    cluster.api.create(roles, binding)
    assert until(lambda: theirs.get(pods)["kind"], "the right to look") == "PodList"
    assert cluster.person()[0] != name


@only_long
def test_stopped_kubelet_is_detected_and_returns_with_its_gpus(whole_cluster: Cluster) -> None:
    control, api = whole_cluster.control, whole_cluster.api
    with control.stopped("kubelet"):
        until(lambda: not is_ready(api.get(f"{NODES}/{NODE}")), "NotReady")
    until(lambda: has_all_cards(api), "the node and its cards")


def has_all_cards(api: Api) -> bool:
    node = api.get(f"{NODES}/{NODE}")
    return is_ready(node) and node["status"]["allocatable"]["nvidia.com/gpu"] == "4"


def test_objects_survive_a_restart_of_the_api_server(
    whole_cluster: Cluster, namespace: str
) -> None:
    control, api = whole_cluster.control, whole_cluster.api
    with control.stopped("apiserver"), pytest.raises(ConnectionError):
        api.get("/readyz")
    found = until(lambda: api.get(f"/api/v1/namespaces/{namespace}"), "the API server again")
    assert found["metadata"]["name"] == namespace


def test_a_paused_etcd_makes_requests_wait(whole_cluster: Cluster) -> None:
    control, api = whole_cluster.control, whole_cluster.api
    maps = "/api/v1/namespaces/default/configmaps"
    with control.paused("etcd"), pytest.raises(RefusedError, match=r"50[04]"):
        api.create(f"{maps}?timeout=1s", {"metadata": {"name": "late"}})
    until(lambda: api.text("/readyz") == "ok", "the API server with its etcd")
    api.delete(f"{maps}/late")


def test_cut_connections_end_a_watch(whole_cluster: Cluster, namespace: str) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    changes = whole_cluster.api.watch(maps)
    whole_cluster.api.create(maps, {"metadata": {"name": "seen"}})
    while next(changes)["object"]["metadata"]["name"] != "seen":
        pass
    whole_cluster.control.cut_connections()
    # A watch that continued would time out, which is neither of these errors.
    with suppress(ConnectionError, IncompleteRead):
        list(changes)
