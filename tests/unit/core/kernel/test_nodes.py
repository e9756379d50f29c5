"""Nodes that are added, drained, lost and seen again."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from rota.core.kernel.desired_state import DesiredState
from rota.core.lifecycle.states import JobState
from rota.core.model.commands import ChangeMembership, StartWorkers, StopWorkers
from rota.core.model.events import JobCancelled, NodeSeen, WorkersLost
from rota.core.model.job import GpuShare, Job, JobId, Queued
from rota.core.model.node import Node, NodeId
from rota.core.model.units import GIB
from rota.core.scheduling.plan import Plan
from tests.support.builders import Lab, cluster, job, live_job, slots

A, B = JobId("a"), JobId("b")


def test_a_new_node_is_used_in_the_next_round() -> None:
    one, two = cluster("2x4")
    lab = Lab([one])
    lab.run(job("a", gpus=4))
    lab.submit(job("b", gpus=4))
    assert lab.round() == []
    lab.tell(NodeSeen(two))
    assert lab.kernel.wants_round
    assert lab.round() == [StartWorkers(B, 1, 0, slots("2:0", "2:1", "2:2", "2:3"))]


def test_a_node_that_is_seen_again_as_it_was_needs_no_round() -> None:
    lab = Lab(cluster("1x4"))
    lab.round()
    lab.tell(NodeSeen(cluster("1x4")[0]))
    assert not lab.kernel.wants_round


def test_the_loss_of_a_node_is_no_failure() -> None:
    lab = Lab(cluster("2x2"))
    lab.run(job("a", gpus=2))
    assert lab.lose(1) == []
    assert lab.job("a").phase == Queued(0.0)
    assert (lab.job("a").failures, lab.job("a").idle_attempts) == (0, 0)
    assert lab.reason("a") == "worker lost with its node"
    assert lab.round() == [StartWorkers(A, 2, 0, slots("2:0", "2:1"))]


def lost(lab: Lab, seconds: float) -> None:
    """All workers of `a` are lost so long after they were up."""
    lab.round()
    lab.started("a")
    lab.wait(seconds)
    lab.tell(WorkersLost(A, lab.job("a").attempt, frozenset(lab.job("a").numbers), "no keeper"))


def backoff_s(lab: Lab) -> float:
    phase = lab.job("a").phase
    assert isinstance(phase, Queued)
    return max(0.0, phase.not_before_s - lab.now)


def test_workers_that_are_lost_again_and_again_wait_longer_each_time() -> None:
    lab = Lab(cluster("1x2"))
    lab.submit(job("a", gpus=2, epochs=10))
    found: list[float] = []
    for _ in range(9):
        lost(lab, 1.0)
        found.append(backoff_s(lab))
        assert lab.kernel.next_timer_s() == (lab.now + found[-1] if found[-1] else math.inf)
        lab.wait(found[-1])
    assert found == [0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0]
    assert (lab.job("a").failures, lab.job("a").idle_attempts) == (0, 0)


@pytest.mark.parametrize("end", ["a long run", "progress", "progress of a run that gave way"])
def test_a_run_with_progress_resets_the_losses(end: str) -> None:
    lab = Lab(cluster("1x2"))
    lab.submit(job("a", gpus=2, epochs=10))
    lost(lab, 1.0)
    if end == "a long run":
        lost(lab, 60.0)
    else:
        lab.round()
        lab.started("a")
        lab.progress("a", 1)
        if end == "progress":
            lost(lab, 1.0)
        else:
            lab.hold("a")
            lab.exited("a", 143)
            lab.release("a")
            lost(lab, 1.0)
    assert backoff_s(lab) == 0.0
    lost(lab, 1.0)
    assert backoff_s(lab) == 10.0


def test_a_back_off_after_a_loss_drops_a_plan_made_meanwhile() -> None:
    lab = Lab(cluster("3x2"))
    lab.submit(job("a", gpus=4))
    lost(lab, 1.0)
    lab.round()
    lab.started("a")
    lab.tell(WorkersLost(A, 2, frozenset({3})))
    lab.round()
    assert lab.exited("a", 143, workers=[0, 1, 2]) == []
    assert backoff_s(lab) == 10.0
    assert lab.round() == []
    lab.wait(10)
    assert lab.round() == [StartWorkers(A, 3, 0, lab.job("a").allocation)]


def test_a_job_never_fails_because_of_lost_workers() -> None:
    lab = Lab(cluster("1x2"))
    lab.submit(job("a", gpus=2))
    lab.kernel.recover(
        [replace(lab.job("a"), losses=5000)], cluster("1x2"), outcomes={}, now=lab.now
    )
    lost(lab, 1.0)
    assert backoff_s(lab) == 600.0


def test_a_job_that_lost_some_workers_stops_the_others_first() -> None:
    lab = Lab(cluster("3x2"))
    lab.run(job("a", gpus=4))
    assert lab.job("a").allocation == slots("1:0", "1:1", "2:0", "2:1")
    assert lab.lose(2) == [StopWorkers(A, 1, (0, 1, 2, 3), 30.0)]
    assert lab.round() == []
    assert lab.exited("a", 143, workers=[0, 1]) == [
        StartWorkers(A, 2, 0, slots("1:0", "1:1", "3:0", "3:1"))
    ]


def test_a_drained_node_s_jobs_move_off() -> None:
    lab = Lab(cluster("2x2"))
    lab.run(job("a", gpus=2))
    assert lab.drain(1) == []
    assert lab.round() == [StopWorkers(A, 1, (0, 1), 30.0)]
    assert lab.exited("a", 143) == [StartWorkers(A, 2, 0, slots("2:0", "2:1"))]


def test_a_live_job_moves_off_without_a_stop() -> None:
    lab = Lab(cluster("2x2"))
    lab.run(live_job("a", gpus=2))
    lab.drain(1)
    assert lab.round() == [ChangeMembership(A, 1, 1, slots("2:0", "2:1"), (2, 3))]


def test_a_job_that_a_drain_stops_names_the_node() -> None:
    lab = Lab(cluster("1x2"))
    lab.run(job("a", gpus=2))
    lab.drain(1)
    lab.round()
    assert lab.reason("a") == "preempted: node-01 is drained"


def test_a_drained_node_takes_no_new_work() -> None:
    lab = Lab(cluster("2x2"))
    lab.drain(1)
    lab.submit(job("a", gpus=2), job("b", gpus=2))
    assert lab.round() == [StartWorkers(A, 1, 0, slots("2:0", "2:1"))]


def test_a_job_whose_planned_node_is_lost_stays_in_its_slots() -> None:
    """The job is not stopped for slots that no longer exist."""
    lab = Lab(cluster("1x2, 1x4"), policy="elastic-fifo")
    lab.run(live_job("b", gpus=4), live_job("a", gpus="2..4"))
    assert lab.job("a").allocation == slots("1:0", "1:1")
    moved = {A: slots("2:0", "2:1", "2:2", "2:3")}
    assert lab.commit(Plan(moved, {A: "gpu"})) == [StopWorkers(B, 1, (0, 1, 2, 3), 30.0)]
    lab.lose(2)
    assert lab.state("a") is JobState.RUNNING
    assert lab.job("a").allocation == slots("1:0", "1:1")
    lab.round()
    assert lab.state("a") is JobState.RUNNING


def test_a_job_that_waits_for_a_node_to_open_again_starts_when_it_does() -> None:
    lab = Lab(cluster("1x2"))
    lab.run(job("a", gpus=2))
    lab.submit(job("b", gpus=2, priority=1))
    lab.round()
    lab.drain(1)
    assert lab.exited("a", 143) == []
    assert lab.tell(NodeSeen(cluster("1x2")[0])) == [StartWorkers(B, 1, 0, slots("1:0", "1:1"))]


def test_an_outdated_plan_is_adopted_in_part() -> None:
    """A job that lost its new slots stays in its old ones, and another round is requested."""
    lab = Lab(cluster("2x2"))
    lab.run(job("a", gpus="2..4"))
    lab.submit(job("b"))
    lab.decide()
    grown = slots("1:0", "1:1", "2:0")
    plan = Plan({A: grown, B: slots("2:1")}, {A: "gpu", B: "gpu"})
    lab.lose(2)
    lab.round()
    assert not lab.kernel.wants_round
    assert lab.commit(plan) == []
    assert lab.state("a") is JobState.RUNNING
    assert lab.kernel.wants_round


def test_a_plan_is_not_adopted_for_cancelled_jobs() -> None:
    lab = Lab(cluster("1x4"))
    lab.submit(job("a"), job("b"))
    plan = lab.decide()
    lab.cancel("a")
    assert lab.commit(plan) == [StartWorkers(B, 1, 0, slots("1:1"))]


def test_a_missing_gpu_is_not_allocated() -> None:
    node = cluster("1x4")[0]
    lab = Lab([node])
    lab.run(job("a", gpus=2), job("b", gpus=2))
    lab.tell(NodeSeen(replace(node, gpus=node.gpus[:2])))
    assert lab.state("b") is JobState.STOPPING
    assert lab.round() == []
    lab.exited("b", 143)
    assert lab.round() == []
    assert lab.kernel.ledger.is_sound(lab.kernel.nodes)


def test_node_changes_are_in_the_effects() -> None:
    lab = Lab(cluster("3x2"))
    lab.drain(1)
    lab.lose(2)
    assert {node.id: node.is_draining for node in lab.store.load().nodes} == {
        NodeId("node-01"): True,
        NodeId("node-03"): False,
    }


def test_gpus_of_one_type_with_different_memory_are_all_used():
    lab = Lab(cluster("1x1:A@16GiB,1x1:A@80GiB"))
    lab.submit(*(job(f"j{i}", share=GpuShare(memory_bytes=8 * GIB)) for i in range(12)))
    lab.round()
    assert [lab.state(f"j{i}") for i in range(12)] == [JobState.STARTING] * 12


def test_nodes_that_come_one_by_one_are_all_used():
    first, *others = cluster("3x1")
    lab = Lab([first])
    lab.run(job("a"))
    for node in others:
        lab.tell(NodeSeen(node))
    lab.submit(job("b"), job("c"))
    lab.round()
    assert [lab.state(name) for name in "abc"] == [
        JobState.RUNNING,
        JobState.STARTING,
        JobState.STARTING,
    ]


def test_a_node_may_be_lost_before_a_new_node_is_used() -> None:
    one, two, three = cluster("3x2")
    lab = Lab([one, two])
    lab.run(job("a", gpus=4))
    lab.tell(NodeSeen(three))
    assert lab.lose(2) == [StopWorkers(A, 1, (0, 1, 2, 3), 30.0)]
    lab.exited("a", 143, workers=[0, 1])
    assert lab.round() == [StartWorkers(A, 2, 0, slots("1:0", "1:1", "3:0", "3:1"))]


def test_a_node_that_comes_back_smaller_waits_for_those_it_lost() -> None:
    """Their slots stay booked until the rest of their attempt is gone."""
    small = cluster("1x1")[0]
    lab = Lab(cluster("2x2"))
    lab.run(job("a", gpus=4))
    lab.lose(1)
    lab.tell(NodeSeen(small))
    lab.submit(job("b"))
    assert lab.round() == []
    assert lab.exited("a", 143, workers=[2, 3]) == [StartWorkers(B, 1, 0, slots("1:0"))]
    assert lab.kernel.ledger.is_sound(lab.kernel.nodes)


def test_nodes_that_change_together_are_refitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of jobs, one refit for each of hundreds of nodes takes minutes."""
    looks: list[int] = []
    refit = DesiredState.refit

    def counted(
        desired: DesiredState, jobs: Mapping[JobId, Job], nodes: Mapping[NodeId, Node]
    ) -> object:
        looks.append(len(nodes))
        return refit(desired, jobs, nodes)

    monkeypatch.setattr(DesiredState, "refit", counted)
    nodes = cluster("3x4")
    lab = Lab(nodes)
    lab.run(job("a", gpus=4))
    drained = [NodeSeen(replace(node, is_draining=True)) for node in nodes]
    effects = lab.kernel.apply_all([*drained, JobCancelled(A)], lab.now)
    assert looks == [3]
    assert set(effects.nodes) == {node.id for node in nodes}
    assert lab.kernel.nodes[nodes[2].id].is_draining
