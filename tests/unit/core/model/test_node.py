"""A node that is kept for some: those are planned there, and nobody else counts on it."""

from dataclasses import replace

from rota.core.events import JobSubmitted, NodeSeen, WorkersStarted
from rota.core.explain import Answers
from rota.core.kernel import Kernel
from rota.core.model import Gpu, Job, JobId, JobSpec, Node, NodeId
from rota.core.round import decide
from rota.core.taints import USUAL, tolerates
from rota.core.view import Rules
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
        self.answers = Answers(view, plan)
        self.kernel.commit(plan, self.now)

    def job(self, name: str) -> Job:
        found = self.kernel.job(JobId(name))
        assert found is not None
        return found

    def node_of(self, name: str) -> str:
        return ",".join(slot.node for slot in self.job(name).allocation)


def test_every_taint_is_to_be_tolerated() -> None:
    assert tolerates(VISION, TAINTS)
    assert not tolerates(frozenset({"team"}), TAINTS)
    assert tolerates(frozenset(), ())


def test_only_who_tolerates_it_is_planned_on_a_kept_node() -> None:
    lab = Lab(OPEN, KEPT)
    assert not tolerates(USUAL, TAINTS)
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
    assert "1 GPU" in str(lab.answers.why_it_waits(lab.job("b")))
    reason = lab.answers.why_it_waits(lab.job("too large"))
    assert str(reason) == "waits until a drained or cordoned node takes work again"


def test_nobody_waits_for_a_kept_node_that_has_nothing_for_them() -> None:
    """As most clusters have one."""
    lab = Lab(OPEN, Node(NodeId("control"), taints=TAINTS))
    lab.submit("too large", gpus=2)
    lab.round()
    reason = str(lab.answers.why_it_waits(lab.job("too large")))
    assert reason == "could not run here even if all else were gone: it needs 2 GPUs"


def test_what_runs_on_a_node_that_is_kept_from_now_on_or_no_longer_goes_on() -> None:
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


def test_a_plan_that_was_made_before_the_taint_came_is_not_followed() -> None:
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


def test_a_plan_that_was_made_before_the_taint_went_is_not_followed() -> None:
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
