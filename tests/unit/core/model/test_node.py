"""Tainted nodes: only jobs that tolerate the taints are planned on them."""

from dataclasses import replace

from rota.core.explain.explain import WaitExplainer
from rota.core.kernel.kernel import Kernel
from rota.core.model.events import JobSubmitted, NodeSeen, WorkersStarted
from rota.core.model.job import Job, JobId, JobSpec
from rota.core.model.node import DEFAULT_TOLERATIONS, Gpu, Node, NodeId, tolerates
from rota.core.scheduling.round import decide
from rota.core.scheduling.view import Rules
from rota.policies.fifo import Fifo

TAINTS = (frozenset({"team", "team=vision"}), frozenset({"slow"}))
VISION = frozenset({"team=vision", "slow"})
OPEN = Node(NodeId("open"), (Gpu(0, "T4"),))
KEPT = Node(NodeId("kept"), (Gpu(0, "T4 (team)"), Gpu(1, "T4 (team)")), taints=TAINTS)


class Lab:
    def __init__(self, *nodes: Node) -> None:
        self.kernel = Kernel(Rules(min_runtime_s=0.0))
        self.now = 0.0
        for node in nodes:
            self.kernel.apply(NodeSeen(node), self.now)

    def submit(self, name: str, **more: object) -> None:
        self.now += 1
        spec = JobSpec(name, **more)  # pyright: ignore[reportArgumentType]
        self.kernel.apply(JobSubmitted(JobId(name), spec), self.now)

    def round(self) -> None:
        view = self.kernel.view(self.now)
        plan = decide(view, Fifo())
        assert not plan.violations
        self.answers = WaitExplainer(view, plan)
        self.kernel.commit(plan, self.now)

    def job(self, name: str) -> Job:
        found = self.kernel.job(JobId(name))
        assert found is not None
        return found

    def node_of(self, name: str) -> str:
        return ",".join(slot.node for slot in self.job(name).allocation)


def test_every_taint_must_be_tolerated() -> None:
    assert tolerates(VISION, TAINTS)
    assert not tolerates(frozenset({"team"}), TAINTS)
    assert tolerates(frozenset(), ())


def test_only_a_tolerating_job_is_planned_on_a_tainted_node() -> None:
    lab = Lab(OPEN, KEPT)
    assert not tolerates(DEFAULT_TOLERATIONS, TAINTS)
    for name in "ab":
        lab.submit(name)
    lab.submit("late", tolerations=VISION)
    lab.submit("too large", gpus=2)
    lab.submit("no gpu", gpus=0, node_labels=frozenset())
    lab.round()
    assert [lab.node_of(name) for name in ("a", "b", "late", "no gpu")] == [
        "open",
        "",
        "kept",
        "open",
    ]
    assert "1 GPU" in str(lab.answers.wait_reason(lab.job("b")))
    reason = lab.answers.wait_reason(lab.job("too large"))
    assert str(reason) == "waits for a drained or cordoned node to accept workers again"


def test_a_job_does_not_wait_for_a_tainted_node_that_is_too_small() -> None:
    """As most clusters have one."""
    lab = Lab(OPEN, Node(NodeId("control"), taints=TAINTS))
    lab.submit("too large", gpus=2)
    lab.round()
    reason = str(lab.answers.wait_reason(lab.job("too large")))
    assert reason == "can never run on this cluster: requests 2 GPUs per worker, largest node has 1"


def test_running_jobs_continue_when_taints_change() -> None:
    lab = Lab(KEPT)
    lab.submit("a", tolerations=VISION)
    lab.round()
    lab.kernel.apply(WorkersStarted(JobId("a"), 1, frozenset({0})), lab.now)
    plain = replace(KEPT, gpus=(Gpu(0, "T4"), Gpu(1, "T4")), taints=())
    for node in (plain, KEPT, replace(plain, is_cordoned=True), plain):
        lab.kernel.apply(NodeSeen(node), lab.now)
        lab.round()
        assert (lab.job("a").state, lab.node_of("a")) == ("running", "kept")
    lab.submit("b")
    lab.round()
    assert lab.job("b").allocation != lab.job("a").allocation
    assert lab.node_of("b") == "kept"


def test_a_plan_from_before_a_new_taint_is_not_adopted() -> None:
    plain = replace(KEPT, gpus=(Gpu(0, "T4"), Gpu(1, "T4")), taints=())
    lab = Lab(plain)
    lab.submit("a")
    plan = decide(lab.kernel.view(lab.now), Fifo())
    lab.kernel.apply(NodeSeen(KEPT), lab.now)
    lab.kernel.commit(plan, lab.now)
    lab.round()
    assert lab.node_of("a") == ""
    lab.submit("b", tolerations=VISION, gpus=2)
    lab.round()
    assert lab.node_of("b") == "kept"


def test_a_plan_from_before_a_removed_taint_is_not_adopted() -> None:
    lab = Lab(KEPT)
    lab.submit("a", tolerations=VISION)
    plan = decide(lab.kernel.view(lab.now), Fifo())
    plain = replace(KEPT, gpus=(Gpu(0, "T4"), Gpu(1, "T4")), taints=())
    lab.kernel.apply(NodeSeen(plain), lab.now)
    lab.kernel.commit(plan, lab.now)
    assert lab.node_of("a") == ""
    lab.submit("b")
    lab.round()
    assert [lab.node_of(name) for name in "ab"] == ["kept", "kept"]
