"""Cordoned nodes: running workers stay, and no new ones start."""

from dataclasses import replace

from rota.core.explain.explain import WaitExplainer
from rota.core.explain.reasons import Drained
from rota.core.lifecycle.states import JobState
from rota.core.model.commands import ChangeMembership, StartWorkers
from rota.core.model.events import NodeSeen, WorkersLost
from rota.core.model.job import GpuShare, JobId, JobSpec
from rota.core.model.node import Node, NodeId
from rota.core.model.units import GIB
from rota.core.scheduling.view import Rules
from tests.support.builders import Lab, cluster, job, live_job, slots

A, B, C = JobId("a"), JobId("b"), JobId("c")
RULES = Rules(min_runtime_s=0.0, restart_cost_s=0.0)


def cordoned(text: str, *names: int) -> tuple[Node, ...]:
    closed = {NodeId(f"node-{name:02}") for name in names}
    return tuple(replace(node, is_cordoned=node.id in closed) for node in cluster(text))


def cordon(lab: Lab, text: str, *names: int) -> None:
    """The cluster of this text, with these nodes closed and no others."""
    for node in cordoned(text, *names):
        assert lab.tell(NodeSeen(node)) == []


def lab_with(*specs: JobSpec, nodes: str, policy: str = "elastic-fifo") -> Lab:
    lab = Lab(cluster(nodes), policy=policy, rules=RULES)
    lab.run(*specs)
    return lab


def test_running_workers_stay_and_no_new_ones_start() -> None:
    lab = lab_with(job("a"), nodes="1x2, 1x1")
    assert lab.job("a").allocation == slots("2:0")
    cordon(lab, "1x2, 1x1", 2)
    assert lab.round() == []
    lab.submit(job("b"), job("c"), job("d"))
    assert lab.round() == [
        StartWorkers(B, 1, 0, slots("1:0")),
        StartWorkers(C, 1, 0, slots("1:1")),
    ]
    lab.exited("a", 0)
    assert lab.round() == []
    cordon(lab, "1x2, 1x1")
    assert lab.round() == [StartWorkers(JobId("d"), 1, 0, slots("2:0"))]


def test_a_cordoned_only_node_keeps_its_jobs() -> None:
    lab = lab_with(job("a"), job("b", gpus="1..3"), nodes="1x4")
    cordon(lab, "1x4", 1)
    assert lab.round() == []
    lab.submit(job("c"))
    assert lab.round() == []
    view = lab.kernel.view(lab.now)
    assert WaitExplainer(view, lab.decide()).wait_reason(lab.job("c")) == Drained()


def test_no_job_is_preempted_for_slots_that_no_job_can_use() -> None:
    lab = lab_with(job("a"), nodes="1x1")
    cordon(lab, "1x1", 1)
    lab.submit(job("b", priority=9))
    assert lab.round() == []
    assert lab.state("a") is JobState.RUNNING


def test_victims_are_on_nodes_that_the_new_job_can_use() -> None:
    """Not the youngest, which would be the first to go, and of no use."""
    lab = lab_with(job("a"), job("b"), nodes="1x1, 1x1")
    assert lab.job("b").allocation == slots("2:0")
    cordon(lab, "1x1, 1x1", 2)
    lab.submit(job("c", priority=9))
    lab.round()
    assert (lab.state("a"), lab.state("b")) == (JobState.STOPPING, JobState.RUNNING)


def test_a_job_that_would_have_to_stop_keeps_its_size() -> None:
    lab = lab_with(job("a", gpus="2..4"), nodes="2x2")
    assert lab.job("a").allocation == slots("1:0", "1:1", "2:0", "2:1")
    cordon(lab, "2x2", 1)
    lab.submit(job("b", gpus=2))
    assert lab.round() == []
    assert lab.state("a") is JobState.RUNNING


def test_a_live_job_gives_up_slots_and_takes_others_elsewhere() -> None:
    lab = lab_with(live_job("a", gpus="1..3"), job("b", gpus=2), nodes="1x2, 1x2")
    assert lab.job("a").allocation == slots("1:0", "1:1")
    cordon(lab, "1x2, 1x2", 1)
    assert lab.round() == []
    lab.exited("b", 0)
    assert lab.round() == [
        ChangeMembership(A, 1, 1, slots("1:0", "1:1", "2:0"), (0, 1, 2)),
    ]
    lab.started("a", [2])
    lab.switched("a")
    lab.submit(job("c", gpus=2))
    assert lab.round() == [ChangeMembership(A, 1, 2, slots("1:0", "1:1"), (0, 1))]


def test_a_slow_worker_on_a_cordoned_node_is_replaced_elsewhere() -> None:
    lab = lab_with(live_job("a", gpus=2), nodes="1x2, 1x2")
    cordon(lab, "1x2, 1x2", 1)
    assert lab.round() == []
    lab = lab_with(live_job("a", gpus="1..2"), nodes="1x2, 1x2")
    cordon(lab, "1x2, 1x2", 1)
    lab.tell(WorkersLost(A, 1, frozenset({1}), "its pod was evicted"))
    assert lab.state("a") is JobState.RUNNING
    lab.switched("a")
    grown = lab.round()
    assert isinstance(grown[0], ChangeMembership)
    assert {slot.node for slot in grown[0].allocation[1:]} == {"node-02"}
    assert (lab.job("a").attempt, lab.job("a").deaths) == (1, 0)


def test_a_job_that_is_lost_there_comes_back_elsewhere() -> None:
    lab = lab_with(job("a"), job("b"), nodes="1x1, 1x2")
    there = {name: lab.job(name).allocation[0].node for name in ("a", "b")}
    assert there == {"a": "node-01", "b": "node-02"}
    cordon(lab, "1x1, 1x2", 1)
    lab.tell(WorkersLost(A, 1, frozenset({0}), "its pod was evicted"))
    assert lab.round() == [StartWorkers(A, 2, 0, slots("2:1"))]
    assert lab.job("a").failures == 0


def test_a_start_that_was_planned_there_is_planned_anew() -> None:
    """It waited for its place to be free, and the node closed meanwhile."""
    lab = lab_with(job("a"), nodes="1x1, 1x1", policy="fifo")
    lab.run(job("b"))
    lab.submit(job("c", priority=1))
    lab.round()
    victim = "a" if lab.state("a") is JobState.STOPPING else "b"
    closing = 1 if victim == "a" else 2
    cordon(lab, "1x1, 1x1", closing)
    lab.exited(victim, 143)
    lab.round()
    other = "b" if victim == "a" else "a"
    lab.exited(other, 143)
    lab.round()
    assert lab.job("c").allocation == slots(f"{3 - closing}:0")


def test_sharers_of_a_gpu_on_a_cordoned_node_stay() -> None:
    half = GpuShare(memory_bytes=8 * GIB)
    lab = lab_with(
        job("a", share=half, gpus_per_worker=0),
        job("b", share=half, gpus_per_worker=0),
        nodes="1x1",
    )
    held = lab.job("a").allocation
    lab.exited("b", 0)
    cordon(lab, "1x1", 1)
    lab.submit(job("c", share=half, gpus_per_worker=0))
    assert lab.round() == []
    assert lab.job("a").allocation == held


def test_a_drain_moves_what_a_cordon_leaves() -> None:
    lab = lab_with(live_job("a"), nodes="2x1")
    cordon(lab, "2x1", 1)
    assert lab.round() == []
    lab.drain(1)
    assert lab.round() == [ChangeMembership(A, 1, 1, slots("2:0"), (1,))]
