"""Sizes beyond the policy: what an owner pins, and growth that did not pay."""

import pytest

from rota.core.commands import ChangeMembership
from rota.core.events import JobResized, MembershipChanged
from rota.core.model import JobId
from rota.core.states import State
from rota.core.view import Rules
from rota.policies.registry import POLICIES
from tests.builders import QUICK, Lab, cluster, job, live_job, slots

A, B = JobId("a"), JobId("b")
GUARDED = Rules(min_runtime_s=0.0, restart_cost_s=0.0)


def n_workers(lab: Lab, name: str = "a") -> int:
    return len(lab.decide().allocations.get(JobId(name), ()))


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_honours_a_pin(policy: str) -> None:
    lab = Lab(cluster("1x4"), policy=policy)
    lab.submit(live_job("a", gpus="1..4", requested_workers=2), live_job("b", gpus="1..4"))
    lab.tell(JobResized(A, 3, "owner"))
    assert n_workers(lab) == 3
    lab.tell(JobResized(A, None, "owner"))
    lab.tell(JobResized(B, 4, "owner"))
    assert n_workers(lab, "b") != 3


@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_is_stopped_by_a_pin_that_there_is_no_room_for(policy: str) -> None:
    lab = Lab(cluster("1x4"), policy=policy)
    lab.run(live_job("b", gpus=3), live_job("a", gpus="1..4"))
    assert lab.state("a") is State.RUNNING
    lab.tell(JobResized(A, 4, "owner"))
    assert n_workers(lab) >= 1


def test_a_pin_shrinks_a_job_whose_gpus_nobody_else_needs() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo", rules=GUARDED)
    lab.run(live_job("a", gpus="1..4"))
    lab.tell(JobResized(A, 2, "owner"))
    assert lab.reason("a") == "resized to 2 by owner"
    assert lab.round() == [ChangeMembership(A, 1, 1, slots("1:0", "1:1"), (0, 1))]
    assert lab.reason("a") == "2 workers as its owner wants"
    lab.switched("a")
    assert lab.round() == []
    lab.tell(JobResized(A, None, "owner"))
    assert n_workers(lab) == 4


def test_a_pin_outlives_a_crash_and_comes_within_the_job_s_own_bounds_only() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.submit(live_job("a", gpus="1..3"))
    lab.tell(JobResized(A, 2))
    lab.tell(JobResized(A, 4))
    lab.tell(JobResized(A, 0))
    lab.recover()
    assert n_workers(lab) == 2


def grown(rules: Rules = QUICK, pause_s: float | None = None) -> Lab:
    """A job that was measured on two GPUs and then grew to four."""
    lab = Lab(cluster("1x4"), policy="elastic-fifo", rules=rules)
    lab.run(live_job("a", gpus="1..4", epochs=100.0), live_job("b", gpus=2))
    for epoch in range(1, 4):
        lab.progress("a", epoch, 10.0)
    lab.exited("b")
    lab.round()
    lab.tell(MembershipChanged(A, 1, 1, pause_s))
    assert len(lab.job("a").allocation) == 4
    return lab


@pytest.mark.parametrize("rules", [QUICK, GUARDED])
def test_a_growth_that_did_not_pay_is_undone_for_a_while(rules: Rules) -> None:
    lab = grown(rules)
    lab.progress("a", 4, 20.0)
    assert lab.round() == [ChangeMembership(A, 1, 2, slots("1:0", "1:1"), (0, 1))]
    assert lab.reason("a") == "2 workers for a while: on 4 an epoch took 20 s, and 10 s before"
    lab.switched("a")
    assert lab.round() == []
    assert lab.kernel.next_timer_s() == 1800
    lab.wait(1800)
    assert (n_workers(lab) == 4) is not rules.is_guarded


def test_a_growth_that_may_have_paid_stays() -> None:
    """One epoch is worth 10 %, which is more than the difference."""
    lab = grown()
    lab.progress("a", 4, 10.5)
    assert lab.round() == []


def test_a_way_back_that_costs_more_than_it_saves_is_not_taken() -> None:
    lab = grown(pause_s=2000.0)
    lab.progress("a", 4, 20.0)
    assert lab.round() == []


def test_a_pin_counts_for_more_than_a_cap() -> None:
    lab = grown()
    lab.progress("a", 4, 20.0)
    lab.tell(JobResized(A, 4))
    assert n_workers(lab) == 4


def test_a_pause_that_was_measured_keeps_a_job_from_growing_for_little() -> None:
    """Nothing is known of a first one, and then it costs nothing."""
    lab = Lab(cluster("1x4"), policy="elastic-fifo", rules=GUARDED)
    lab.run(live_job("a", gpus="1..4", epochs=4.0), live_job("b", gpus=2))
    lab.progress("a", 1.0, 10.0)
    lab.exited("b")
    assert n_workers(lab) == 4
    lab.round()
    change = lab.job("a")
    lab.tell(MembershipChanged(A, 1, change.generation, 60.0))
    assert lab.job("a").resize_s == 60.0
    lab.run(live_job("c", gpus=2))
    lab.switched("a")
    lab.started("c")
    lab.exited("c")
    assert n_workers(lab) == 2


@pytest.mark.parametrize("nonsense", [-1.0, float("nan"), float("inf"), None])
def test_a_pause_that_makes_no_sense_is_not_taken_over(nonsense: float | None) -> None:
    lab = Lab(cluster("1x2"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..2"))
    lab.submit(job("b"))
    lab.round()
    lab.tell(MembershipChanged(A, 1, 1, nonsense))
    assert lab.job("a").resize_s is None
    assert len(lab.job("a").allocation) == 1


def test_a_drained_node_s_workers_move_in_one_change_and_worker_0_stays() -> None:
    lab = Lab(cluster("3x1"))
    lab.run(live_job("a", gpus=2))
    assert lab.job("a").allocation == slots("1:0", "2:0")
    lab.drain(2)
    assert lab.round() == [ChangeMembership(A, 1, 1, slots("1:0", "3:0"), (0, 2))]


def test_worker_0_s_part_goes_over_to_another_if_its_node_is_drained() -> None:
    lab = Lab(cluster("3x1"))
    lab.run(live_job("a", gpus=2))
    lab.drain(1)
    assert lab.round() == [ChangeMembership(A, 1, 1, slots("3:0", "2:0"), (2, 1))]


def test_a_job_of_one_worker_moves_without_a_stop() -> None:
    lab = Lab(cluster("2x1"))
    lab.run(live_job("a"))
    lab.drain(1)
    assert lab.round() == [ChangeMembership(A, 1, 1, slots("2:0"), (1,))]
    lab.exited("a", 0, workers=[0])
    assert lab.state("a") is State.RUNNING
    lab.switched("a")
    assert lab.job("a").allocation == slots("2:0")
