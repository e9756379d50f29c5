"""Nodes of the scheduler: without resources of other pods, and closed where no worker may start."""

import pytest
from structlog.testing import capture_logs

from rota.core.explain.feasibility import with_full_capacity
from rota.core.model.events import NodeLost, NodeSeen
from rota.core.model.node import DEFAULT_TOLERATIONS, Node, NodeId, tolerates
from rota.engines.kubernetes.nodes.inventory import DEFAULT_GPU_BYTES
from rota.engines.kubernetes.nodes.taints import toleration_keys
from rota.engines.kubernetes.nodes.tracker import GPU_COUNT_TTL_S, NodeTracker
from rota.engines.kubernetes.pods.requests import requests_of
from rota.engines.kubernetes.pods.tracker import PodTracker
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.kube.resources import WatchEvent
from tests.support.kube_objects import WORKER, Object, foreign, node, pod

SETTINGS = KubernetesSettings()
TAINT = {"key": "lab/reserved", "value": "vision", "effect": "NoSchedule"}


class NodeLab:
    """A node tracker that receives changes from the test."""

    def __init__(self, settings: KubernetesSettings = SETTINGS) -> None:
        self.pod_tracker = PodTracker()
        self.now = 0.0
        self.node_tracker = NodeTracker(settings, self.pod_tracker, clock=lambda: self.now)

    def sees(self, *nodes: Object) -> list[NodeSeen | NodeLost]:
        for each in nodes:
            self.node_tracker.see_node(WatchEvent("MODIFIED", each))
        return self.node_tracker.pop_events()

    def sees_pod(self, theirs: Object, change: str = "MODIFIED") -> list[NodeSeen | NodeLost]:
        self.node_tracker.see_foreign(
            WatchEvent("DELETED" if change == "DELETED" else "MODIFIED", theirs)
        )
        return self.node_tracker.pop_events()

    def holds(self, *gpus: int, is_bound: bool = True, **more: object) -> None:
        notes = {"rota.dev/node": "n1", "rota.dev/gpus": ",".join(map(str, gpus))}
        spec = {"nodeName": "n1", **more} if is_bound else {**more}
        resources = {"requests": {"cpu": "2", "memory": "1Gi"}}
        containers = [{"name": "worker", "resources": resources}]
        self.pod_tracker.see(
            pod("Running", meta={"annotations": notes}, spec=spec | {"containers": containers}),
            WORKER,
        )

    @property
    def node(self) -> Node:
        [known] = self.node_tracker.nodes()
        return known


def indices(seen: Node) -> list[int]:
    return [gpu.index for gpu in seen.gpus]


def test_a_node_has_its_labels_and_allocatable_resources() -> None:
    lab = NodeLab()
    assert lab.sees(node(gpus=2)) == [NodeSeen(lab.node)]
    assert [(gpu.type, gpu.memory_bytes) for gpu in lab.node.gpus] == [("A100", 40 * 2**30)] * 2
    assert (lab.node.cpus, lab.node.memory_bytes, lab.node.max_workers) == (32, 64 * 2**30, 110)
    assert not lab.node.is_closed


def test_an_assumed_gpu_memory_is_logged_once() -> None:
    silent = node(gpus=2)
    silent["metadata"]["labels"] = {}
    lab = NodeLab()
    with capture_logs() as told:
        lab.sees(node("n2"), silent)
        lab.sees(silent | {"spec": {"unschedulable": True}})
    assert [(each["node"], each["label"]) for each in told] == [("n1", "nvidia.com/gpu.memory")]


def test_other_gpu_resources() -> None:
    sliced = node(gpus=0)
    sliced["status"]["allocatable"]["nvidia.com/mig-1g.5gb"] = "7"
    sliced["metadata"]["labels"] = {
        "nvidia.com/mig-1g.5gb.product": "A100-MIG-1g.5gb",
        "nvidia.com/mig-1g.5gb.memory": "4864",
    }
    lab = NodeLab(KubernetesSettings(gpu_resource="nvidia.com/mig-1g.5gb"))
    lab.sees(sliced)
    assert {(gpu.type, gpu.memory_bytes) for gpu in lab.node.gpus} == {
        ("A100-MIG-1g.5gb", 4864 * 2**20)
    }
    assert len(lab.node.gpus) == 7


def test_resources_of_foreign_pods_are_subtracted() -> None:
    lab = NodeLab()
    lab.sees(node())
    assert lab.sees_pod(foreign("a", gpus=3, cpu="8")) == [NodeSeen(lab.node)]
    assert indices(lab.node) == [0, 1, 2, 3, 4]
    assert (lab.node.cpus, lab.node.max_workers) == (24, 109)
    lab.sees_pod(foreign("a", gpus=3, cpu="8", phase="Succeeded"))
    assert (len(lab.node.gpus), lab.node.cpus) == (8, 32)


def test_a_deleted_or_unbound_pod_uses_nothing() -> None:
    lab = NodeLab()
    lab.sees(node())
    lab.sees_pod(foreign("waits", node="", gpus=4))
    assert len(lab.node.gpus) == 8
    lab.sees_pod(foreign("goes", gpus=4))
    lab.sees_pod(foreign("goes", gpus=4), "DELETED")
    assert len(lab.node.gpus) == 8


def test_foreign_pods_never_take_indices_of_our_pods() -> None:
    lab = NodeLab()
    lab.sees(node(gpus=4))
    lab.holds(3, 2)
    lab.sees_pod(foreign("a", gpus=2))
    assert indices(lab.node) == [2, 3]


def test_indices_of_foreign_pods_are_stable() -> None:
    """An index that was just freed and planned with must not change."""
    lab = NodeLab()
    lab.sees(node(gpus=4))
    lab.holds(3)
    lab.sees_pod(foreign("a", gpus=1))
    assert indices(lab.node) == [0, 1, 3]
    lab.pod_tracker.pod_deleted(WORKER, "uid-rota-job-a1-g0-w0")
    lab.sees_pod(foreign("b", gpus=1))
    assert indices(lab.node) == [0, 1]


def test_a_failed_gpu_takes_a_free_index() -> None:
    lab = NodeLab()
    lab.sees(node(gpus=4))
    lab.holds(3)
    lab.sees(node(gpus=3, capacity=4))
    assert indices(lab.node) == [0, 1, 3]


def test_a_cordon_and_its_removal() -> None:
    lab = NodeLab()
    lab.sees(node(is_cordoned=True))
    assert lab.node.is_closed
    assert len(lab.node.gpus) == 8
    lab.sees(node())
    assert not lab.node.is_closed


def admits(lab: NodeLab, *tolerations: Object) -> bool:
    """Whether a pod with these, or else one of ours, may go to its node."""
    words = toleration_keys(tolerations) if tolerations else DEFAULT_TOLERATIONS
    return tolerates(words, lab.node.taints) and not lab.node.is_closed


EQUAL = {"key": "lab/reserved", "value": "vision", "effect": "NoSchedule"}


def test_a_tainted_node_is_for_pods_that_tolerate_the_taint() -> None:
    lab = NodeLab()
    lab.sees(node(taints=(TAINT,)))
    assert not admits(lab)
    assert {gpu.type for gpu in lab.node.gpus} == {"A100 (lab/reserved=vision)"}
    assert {gpu.type for gpu in with_full_capacity(lab.node).gpus} == {"A100"}
    lab.sees(node(taints=(TAINT | {"effect": "PreferNoSchedule"},)))
    assert admits(lab)
    assert {gpu.type for gpu in lab.node.gpus} == {"A100"}


@pytest.mark.parametrize(
    ("toleration", "is_enough"),
    [
        (EQUAL, True),
        ({"key": "lab/reserved", "operator": "Exists"}, True),
        ({"key": "lab/reserved", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        (EQUAL | {"operator": "Equal", "effect": ""}, True),
        (EQUAL | {"value": "language"}, False),
        ({"key": "lab/reserved"}, False),
        (EQUAL | {"operator": "Gt"}, False),
    ],
)
def test_matching_tolerations(toleration: Object, is_enough: bool) -> None:
    """For an external pod and for our own pods."""
    lab = NodeLab()
    lab.sees(node(taints=(TAINT,)))
    assert admits(lab, toleration) == is_enough
    for_all = NodeLab(KubernetesSettings(tolerations=(toleration,)))
    for_all.sees(node(taints=(TAINT,)))
    assert admits(for_all) == is_enough
    assert not admits(for_all, {"key": "other"}), "what ours tolerate, others need not"


def test_every_taint_must_be_tolerated() -> None:
    lab = NodeLab()
    lab.sees(node(taints=(TAINT, {"key": "slow", "effect": "NoExecute"})))
    assert not admits(lab, EQUAL)
    assert admits(lab, EQUAL, {"key": "slow", "operator": "Exists"})


def test_a_tainted_node_is_cordoned_while_other_workers_run_there() -> None:
    lab = NodeLab()
    lab.holds(1)
    lab.sees(node(taints=(TAINT,)))
    assert lab.node.is_cordoned
    assert {gpu.type for gpu in lab.node.gpus} == {"A100"}, "what they were planned on"
    lab.pod_tracker.pod_deleted(WORKER, "uid-rota-job-a1-g0-w0")
    lab.node_tracker.recheck("n1")
    assert lab.node_tracker.pop_events() == [NodeSeen(lab.node)]
    assert admits(lab, EQUAL)


def test_a_tainted_node_stays_open_while_tolerating_workers_run_there() -> None:
    lab = NodeLab()
    lab.holds(1, schedulerName="rota", tolerations=[EQUAL])
    lab.sees(node(taints=(TAINT,)))
    assert admits(lab, EQUAL)


def test_the_unschedulable_taint_is_a_cordon() -> None:
    lab = NodeLab()
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    lab.sees(node(taints=(TAINT, cordon)))
    assert lab.node.is_cordoned
    assert {gpu.type for gpu in lab.node.gpus} == {"A100"}


def test_an_unresponsive_node_keeps_its_workers_only() -> None:
    lab = NodeLab()
    lab.sees(node(gpus=4))
    lab.holds(1, 2)
    unreachable = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
    lab.sees(node(gpus=4, ready="Unknown", taints=(unreachable,)))
    assert indices(lab.node) == [1, 2]
    assert (lab.node.cpus, lab.node.memory_bytes, lab.node.max_workers) == (2, 2**30, 1)
    assert not lab.node.is_draining, "what runs there must not be moved off"
    assert "does not respond" in lab.node.note
    lab.sees(node(gpus=4))
    assert (indices(lab.node), lab.node.note) == ([0, 1, 2, 3], "")


def test_a_node_is_lost_when_it_is_gone_or_out_of_service() -> None:
    lab = NodeLab()
    lab.sees(node("n1"), node("n2"))
    lab.node_tracker.see_node(WatchEvent("DELETED", node("n1")))
    assert lab.node_tracker.pop_events() == [NodeLost(NodeId("n1"))]
    out = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    assert lab.sees(node("n2", ready="Unknown", taints=(out,))) == [NodeLost(NodeId("n2"))]
    assert lab.node_tracker.nodes() == ()


def test_a_node_declared_lost_comes_back_when_it_is_ready() -> None:
    lab = NodeLab()
    lab.sees(node(ready="Unknown"))
    lab.node_tracker.give_up("n1")
    assert lab.node_tracker.pop_events() == [NodeLost(NodeId("n1"))]
    assert lab.sees(node(ready="Unknown")) == []
    assert lab.sees(node()) == [NodeSeen(lab.node)]


def test_no_change_no_event() -> None:
    lab = NodeLab()
    lab.sees(node())
    assert lab.sees(node()) == []
    assert lab.sees_pod(foreign("small", phase="Pending", node="")) == []


def test_requests_of_containers_and_init_containers() -> None:
    spec = {
        "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [
            {"resources": {"requests": {"cpu": "3"}}},
            {"resources": {"limits": {"cpu": "500m"}}, "restartPolicy": "Always"},
        ],
        "overhead": {"cpu": "250m"},
    }
    assert requests_of({"spec": spec}, "nvidia.com/gpu").cpus == 3.25


def test_the_whole_node_includes_used_and_unresponsive_resources() -> None:
    lab = NodeLab()
    lab.sees(node(gpus=4))
    assert with_full_capacity(lab.node) == lab.node
    lab.sees_pod(foreign("theirs", gpus=3))
    assert (indices(lab.node), indices(with_full_capacity(lab.node))) == ([0], [0, 1, 2, 3])
    lab.sees(node(gpus=4, ready="Unknown"))
    assert (indices(lab.node), indices(with_full_capacity(lab.node))) == ([], [0, 1, 2, 3])
    assert with_full_capacity(lab.node).max_workers > 0


def test_a_node_without_its_device_plugin_keeps_gpus_in_use() -> None:
    lab = NodeLab()
    lab.holds(1)
    for capacity in (0, 4):
        lab.sees(node(gpus=0, capacity=capacity))
        assert indices(lab.node) == [1]
    lab.sees(node(gpus=4))
    assert indices(lab.node) == [0, 1, 2, 3]


def test_a_recent_gpu_count_is_remembered() -> None:
    """The kubelet has restarted, and the device plugin is not back yet."""
    lab = NodeLab()
    lab.sees(node(gpus=4))
    lab.sees(node(gpus=0, capacity=4))
    assert (indices(lab.node), indices(with_full_capacity(lab.node))) == ([], [0, 1, 2, 3])
    lab.sees(node(gpus=0, capacity=0))
    assert (indices(lab.node), indices(with_full_capacity(lab.node))) == ([], [0, 1, 2, 3])
    lab.now += GPU_COUNT_TTL_S
    lab.node_tracker.forget_expired()
    assert lab.node_tracker.pop_events() == [NodeSeen(lab.node)]
    assert indices(with_full_capacity(lab.node)) == []


def test_the_memory_of_a_gpu_count_starts_when_gpus_disappear() -> None:
    lab = NodeLab()
    lab.sees(node(gpus=4))
    lab.now += 2 * GPU_COUNT_TTL_S
    lab.sees(node(gpus=1, capacity=1))
    assert indices(with_full_capacity(lab.node)) == [0, 1, 2, 3]
    lab.sees(node(gpus=4))
    assert with_full_capacity(lab.node) == lab.node


@pytest.mark.parametrize("memory", ["1e308", "1e290", "15E", "-5", "nan", "inf"])
def test_an_absurd_gpu_memory_is_ignored(memory: str) -> None:
    """A kubelet may set labels of its node to any number."""
    liar = node(gpus=2)
    liar["metadata"]["labels"]["nvidia.com/gpu.memory"] = memory
    lab = NodeLab()
    assert lab.sees(liar)
    assert {gpu.memory_bytes for gpu in lab.node.gpus} == {DEFAULT_GPU_BYTES}


def test_an_error_about_one_node_does_not_hide_the_others() -> None:
    lab = NodeLab()
    broken = node("n1")
    broken["spec"]["taints"] = ["not a taint"]
    events = lab.sees(broken, node("n2"))
    assert [event.node.id for event in events if isinstance(event, NodeSeen)] == ["n2"]
