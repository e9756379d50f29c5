"""Sizes that override the policy: pins by the owner, and caps after an unprofitable growth."""

import pytest

from rota.core.lifecycle.states import JobState
from rota.core.model.commands import ChangeMembership
from rota.core.model.events import JobResized, MembershipChanged
from rota.core.model.job import JobId
from rota.core.scheduling.view import Rules
from rota.policies.registry import POLICIES
from tests.support.builders import QUICK, Lab, cluster, job, live_job, slots

A, B = JobId("a"), JobId("b")
GUARDED = Rules(min_runtime_s=0.0, restart_cost_s=0.0)


def n_workers(lab: Lab, name: str = "a") -> int:
    return len(lab.peek().allocations.get(JobId(name), ()))


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_respects_a_pinned_size(policy: str) -> None:
    lab = Lab(cluster("1x4"), policy=policy)
    lab.submit(live_job("a", gpus="1..4", requested_workers=2), live_job("b", gpus="1..4"))
    lab.tell(JobResized(A, 3, "owner"))
    assert n_workers(lab) == 3
    lab.tell(JobResized(A, None, "owner"))
    lab.tell(JobResized(B, 4, "owner"))
    assert n_workers(lab, "b") != 3


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pin_that_does_not_fit_stops_no_job(policy: str) -> None:
    lab = Lab(cluster("1x4"), policy=policy)
    lab.run(live_job("b", gpus=3), live_job("a", gpus="1..4"))
    assert lab.state("a") is JobState.RUNNING
    lab.tell(JobResized(A, 4, "owner"))
    assert n_workers(lab) >= 1


def test_a_pin_shrinks_a_job_even_if_its_gpus_stay_idle() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo", rules=GUARDED)
    lab.run(live_job("a", gpus="1..4"))
    lab.tell(JobResized(A, 2, "owner"))
    assert lab.reason("a") == "resized to 2 by owner"
    assert lab.round() == [ChangeMembership(A, 1, 1, slots("1:0", "1:1"), (0, 1))]
    assert lab.reason("a") == "resized from 4 to 2 GPUs: pinned to 2 GPUs by its owner"
    lab.switched("a")
    assert lab.round() == []
    lab.tell(JobResized(A, None, "owner"))
    assert n_workers(lab) == 4


def test_a_pin_survives_a_crash_and_must_be_within_the_jobs_range() -> None:
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
def test_an_unprofitable_growth_is_undone_for_a_while(rules: Rules) -> None:
    lab = grown(rules)
    lab.progress("a", 4, 20.0)
    assert lab.round() == [ChangeMembership(A, 1, 2, slots("1:0", "1:1"), (0, 1))]
    limit = "temporarily limited to 2 GPUs: an epoch took 20 s on 4 GPUs and 10 s on 2"
    assert lab.reason("a") == f"resized from 4 to 2 GPUs: {limit}"
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


def test_an_unprofitable_growth_stays_if_undoing_it_costs_more() -> None:
    lab = grown(pause_s=2000.0)
    lab.progress("a", 4, 20.0)
    assert lab.round() == []


def test_a_pin_counts_for_more_than_a_cap() -> None:
    lab = grown()
    lab.progress("a", 4, 20.0)
    lab.tell(JobResized(A, 4))
    assert n_workers(lab) == 4


def test_a_measured_pause_prevents_a_small_growth() -> None:
    """The first pause is unknown and counts as no cost."""
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
def test_an_invalid_pause_is_ignored(nonsense: float | None) -> None:
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


def test_another_worker_becomes_rank_0_if_its_node_is_drained() -> None:
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
    assert lab.state("a") is JobState.RUNNING
    lab.switched("a")
    assert lab.job("a").allocation == slots("2:0")
