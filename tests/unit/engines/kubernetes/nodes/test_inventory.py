"""Nodes as we may use them: minus what others hold, and not where nothing should go."""

import pytest
from structlog.testing import capture_logs

from rota.core.events import NodeLost, NodeSeen
from rota.core.misfit import at_best
from rota.core.model import Node, NodeId
from rota.core.taints import USUAL, tolerates
from rota.engines.kubernetes.crew import Crew
from rota.engines.kubernetes.objects import Change
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.engines.kubernetes.stock import REMEMBERED_S, Stock
from rota.engines.kubernetes.taints import spelled
from rota.engines.kubernetes.usage import usage_of
from tests.unit.engines.kubernetes.objects import WORKER, Object, foreign, node, pod

SETTINGS = KubernetesSettings()
TAINT = {"key": "lab/reserved", "value": "vision", "effect": "NoSchedule"}


class Lab:
    """A stock of nodes that is told of changes by hand."""

    def __init__(self, settings: KubernetesSettings = SETTINGS) -> None:
        self.crew = Crew()
        self.now = 0.0
        self.stock = Stock(settings, self.crew, clock=lambda: self.now)

    def sees(self, *nodes: Object) -> list[NodeSeen | NodeLost]:
        for each in nodes:
            self.stock.see_node(Change("MODIFIED", each))
        return self.stock.news()

    def sees_pod(self, theirs: Object, change: str = "MODIFIED") -> list[NodeSeen | NodeLost]:
        self.stock.see_foreign(Change("DELETED" if change == "DELETED" else "MODIFIED", theirs))
        return self.stock.news()

    def holds(self, *gpus: int, is_bound: bool = True, **more: object) -> None:
        notes = {"rota.dev/node": "n1", "rota.dev/gpus": ",".join(map(str, gpus))}
        spec = {"nodeName": "n1", **more} if is_bound else {**more}
        resources = {"requests": {"cpu": "2", "memory": "1Gi"}}
        containers = [{"name": "worker", "resources": resources}]
        self.crew.see(
            pod("Running", meta={"annotations": notes}, spec=spec | {"containers": containers}),
            WORKER,
        )

    @property
    def node(self) -> Node:
        [known] = self.stock.nodes()
        return known


def indices(seen: Node) -> list[int]:
    return [gpu.index for gpu in seen.gpus]


def test_a_node_is_what_its_labels_and_its_allocatable_say() -> None:
    lab = Lab()
    assert lab.sees(node(gpus=2)) == [NodeSeen(lab.node)]
    assert [(gpu.type, gpu.memory_bytes) for gpu in lab.node.gpus] == [("A100", 40 * 2**30)] * 2
    assert (lab.node.cpus, lab.node.memory_bytes, lab.node.max_workers) == (32, 64 * 2**30, 110)
    assert not lab.node.is_closed


def test_a_guess_at_the_memory_of_gpus_is_told_of_once() -> None:
    silent = node(gpus=2)
    silent["metadata"]["labels"] = {}
    lab = Lab()
    with capture_logs() as told:
        lab.sees(node("n2"), silent)
        lab.sees(silent | {"spec": {"unschedulable": True}})
    assert [(each["node"], each["label"]) for each in told] == [("n1", "nvidia.com/gpu.memory")]


def test_other_names_of_a_gpu() -> None:
    sliced = node(gpus=0)
    sliced["status"]["allocatable"]["nvidia.com/mig-1g.5gb"] = "7"
    sliced["metadata"]["labels"] = {
        "nvidia.com/mig-1g.5gb.product": "A100-MIG-1g.5gb",
        "nvidia.com/mig-1g.5gb.memory": "4864",
    }
    lab = Lab(KubernetesSettings(gpu_resource="nvidia.com/mig-1g.5gb"))
    lab.sees(sliced)
    assert {(gpu.type, gpu.memory_bytes) for gpu in lab.node.gpus} == {
        ("A100-MIG-1g.5gb", 4864 * 2**20)
    }
    assert len(lab.node.gpus) == 7


def test_what_others_hold_is_not_ours() -> None:
    lab = Lab()
    lab.sees(node())
    assert lab.sees_pod(foreign("a", gpus=3, cpu="8")) == [NodeSeen(lab.node)]
    assert indices(lab.node) == [0, 1, 2, 3, 4]
    assert (lab.node.cpus, lab.node.max_workers) == (24, 109)
    lab.sees_pod(foreign("a", gpus=3, cpu="8", phase="Succeeded"))
    assert (len(lab.node.gpus), lab.node.cpus) == (8, 32)


def test_a_pod_that_is_gone_or_not_bound_holds_nothing() -> None:
    lab = Lab()
    lab.sees(node())
    lab.sees_pod(foreign("waits", node="", gpus=4))
    assert len(lab.node.gpus) == 8
    lab.sees_pod(foreign("goes", gpus=4))
    lab.sees_pod(foreign("goes", gpus=4), "DELETED")
    assert len(lab.node.gpus) == 8


def test_others_are_never_given_the_places_that_ours_hold() -> None:
    lab = Lab()
    lab.sees(node(gpus=4))
    lab.holds(3, 2)
    lab.sees_pod(foreign("a", gpus=2))
    assert indices(lab.node) == [2, 3]


def test_the_places_of_others_stay_where_they_are() -> None:
    """A place that was just freed and planned with must not be taken away for another."""
    lab = Lab()
    lab.sees(node(gpus=4))
    lab.holds(3)
    lab.sees_pod(foreign("a", gpus=1))
    assert indices(lab.node) == [0, 1, 3]
    lab.crew.vanish(WORKER, "uid-rota-job-a1-g0-w0")
    lab.sees_pod(foreign("b", gpus=1))
    assert indices(lab.node) == [0, 1]


def test_a_card_that_failed_is_one_that_nobody_holds() -> None:
    lab = Lab()
    lab.sees(node(gpus=4))
    lab.holds(3)
    lab.sees(node(gpus=3, capacity=4))
    assert indices(lab.node) == [0, 1, 3]


def test_a_cordoned_node_is_closed_and_opens_again() -> None:
    lab = Lab()
    lab.sees(node(is_cordoned=True))
    assert lab.node.is_closed
    assert len(lab.node.gpus) == 8
    lab.sees(node())
    assert not lab.node.is_closed


def admits(lab: Lab, *tolerations: Object) -> bool:
    """Whether a pod with these, or else one of ours, may go to its node."""
    words = spelled(tolerations) if tolerations else USUAL
    return tolerates(words, lab.node.taints) and not lab.node.is_closed


EQUAL = {"key": "lab/reserved", "value": "vision", "effect": "NoSchedule"}


def test_a_taint_keeps_a_node_for_those_who_tolerate_it() -> None:
    lab = Lab()
    lab.sees(node(taints=(TAINT,)))
    assert not admits(lab)
    assert {gpu.type for gpu in lab.node.gpus} == {"A100 (lab/reserved=vision)"}
    assert {gpu.type for gpu in at_best(lab.node).gpus} == {"A100"}
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
def test_what_tolerates_a_taint(toleration: Object, is_enough: bool) -> None:
    """For a pod of somebody's as for all of ours."""
    lab = Lab()
    lab.sees(node(taints=(TAINT,)))
    assert admits(lab, toleration) == is_enough
    for_all = Lab(KubernetesSettings(tolerations=(toleration,)))
    for_all.sees(node(taints=(TAINT,)))
    assert admits(for_all) == is_enough
    assert not admits(for_all, {"key": "other"}), "what ours tolerate, others need not"


def test_every_taint_is_to_be_tolerated() -> None:
    lab = Lab()
    lab.sees(node(taints=(TAINT, {"key": "slow", "effect": "NoExecute"})))
    assert not admits(lab, EQUAL)
    assert admits(lab, EQUAL, {"key": "slow", "operator": "Exists"})


def test_a_tainted_node_is_closed_to_all_while_others_run_there() -> None:
    lab = Lab()
    lab.holds(1)
    lab.sees(node(taints=(TAINT,)))
    assert lab.node.is_cordoned
    assert {gpu.type for gpu in lab.node.gpus} == {"A100"}, "what they were planned on"
    lab.crew.vanish(WORKER, "uid-rota-job-a1-g0-w0")
    lab.stock.look_again("n1")
    assert lab.stock.news() == [NodeSeen(lab.node)]
    assert admits(lab, EQUAL)


def test_a_tainted_node_stays_open_for_its_like_while_one_that_tolerates_it_runs_there() -> None:
    lab = Lab()
    lab.holds(1, schedulerName="rota", tolerations=[EQUAL])
    lab.sees(node(taints=(TAINT,)))
    assert admits(lab, EQUAL)


def test_a_cordon_is_told_by_its_taint_as_well() -> None:
    lab = Lab()
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    lab.sees(node(taints=(TAINT, cordon)))
    assert lab.node.is_cordoned
    assert {gpu.type for gpu in lab.node.gpus} == {"A100"}


def test_a_silent_node_keeps_what_runs_there_and_takes_nothing_new() -> None:
    lab = Lab()
    lab.sees(node(gpus=4))
    lab.holds(1, 2)
    unreachable = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
    lab.sees(node(gpus=4, ready="Unknown", taints=(unreachable,)))
    assert indices(lab.node) == [1, 2]
    assert (lab.node.cpus, lab.node.memory_bytes, lab.node.max_workers) == (2, 2**30, 1)
    assert not lab.node.is_draining, "what runs there must not be moved off"
    assert "does not answer" in lab.node.note
    lab.sees(node(gpus=4))
    assert (indices(lab.node), lab.node.note) == ([0, 1, 2, 3], "")


def test_a_node_is_lost_when_it_is_gone_or_out_of_service() -> None:
    lab = Lab()
    lab.sees(node("n1"), node("n2"))
    lab.stock.see_node(Change("DELETED", node("n1")))
    assert lab.stock.news() == [NodeLost(NodeId("n1"))]
    out = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    assert lab.sees(node("n2", ready="Unknown", taints=(out,))) == [NodeLost(NodeId("n2"))]
    assert lab.stock.nodes() == ()


def test_a_node_that_was_given_up_comes_back_when_it_is_ready() -> None:
    lab = Lab()
    lab.sees(node(ready="Unknown"))
    lab.stock.give_up("n1")
    assert lab.stock.news() == [NodeLost(NodeId("n1"))]
    assert lab.sees(node(ready="Unknown")) == []
    assert lab.sees(node()) == [NodeSeen(lab.node)]


def test_nothing_is_told_where_nothing_changed() -> None:
    lab = Lab()
    lab.sees(node())
    assert lab.sees(node()) == []
    assert lab.sees_pod(foreign("small", phase="Pending", node="")) == []


def test_a_pod_uses_what_runs_together_or_what_runs_before() -> None:
    spec = {
        "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [
            {"resources": {"requests": {"cpu": "3"}}},
            {"resources": {"limits": {"cpu": "500m"}}, "restartPolicy": "Always"},
        ],
        "overhead": {"cpu": "250m"},
    }
    assert usage_of({"spec": spec}, "nvidia.com/gpu").cpus == 3.25


def test_what_others_hold_and_what_does_not_answer_is_there_at_best() -> None:
    lab = Lab()
    lab.sees(node(gpus=4))
    assert at_best(lab.node) == lab.node
    lab.sees_pod(foreign("theirs", gpus=3))
    assert (indices(lab.node), indices(at_best(lab.node))) == ([0], [0, 1, 2, 3])
    lab.sees(node(gpus=4, ready="Unknown"))
    assert (indices(lab.node), indices(at_best(lab.node))) == ([], [0, 1, 2, 3])
    assert at_best(lab.node).max_workers > 0


def test_a_node_that_comes_back_without_its_gpus_keeps_those_in_use() -> None:
    lab = Lab()
    lab.holds(1)
    for capacity in (0, 4):
        lab.sees(node(gpus=0, capacity=capacity))
        assert indices(lab.node) == [1]
    lab.sees(node(gpus=4))
    assert indices(lab.node) == [0, 1, 2, 3]


def test_what_a_node_had_lately_it_may_have_again() -> None:
    """Its kubelet has begun anew, and its device plugin is not back yet."""
    lab = Lab()
    lab.sees(node(gpus=4))
    lab.sees(node(gpus=0, capacity=4))
    assert (indices(lab.node), indices(at_best(lab.node))) == ([], [0, 1, 2, 3])
    lab.sees(node(gpus=0, capacity=0))
    assert (indices(lab.node), indices(at_best(lab.node))) == ([], [0, 1, 2, 3])
    lab.now += REMEMBERED_S
    lab.stock.look_at_the_clock()
    assert lab.stock.news() == [NodeSeen(lab.node)]
    assert indices(at_best(lab.node)) == []


def test_what_a_node_had_is_remembered_from_when_it_was_gone() -> None:
    lab = Lab()
    lab.sees(node(gpus=4))
    lab.now += 2 * REMEMBERED_S
    lab.sees(node(gpus=1, capacity=1))
    assert indices(at_best(lab.node)) == [0, 1, 2, 3]
    lab.sees(node(gpus=4))
    assert at_best(lab.node) == lab.node
