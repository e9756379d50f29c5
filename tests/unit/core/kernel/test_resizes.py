"""Jobs that give way, come back, grow, shrink and move."""

from rota.core.commands import ChangeMembership, StartWorkers, StopWorkers
from rota.core.events import MembershipChanged, WorkersExited
from rota.core.model import JobId, Service
from rota.core.plan import Plan
from rota.core.states import State
from tests.builders import Lab, cluster, job, live_job, slots

A, B = JobId("a"), JobId("b")


def test_a_preempted_job_starts_again_when_there_is_room() -> None:
    lab = Lab(cluster("1x2"))
    lab.run(job("a", gpus=2))
    lab.submit(job("b", gpus=1, priority=1))
    assert lab.round() == [StopWorkers(A, 1, (0, 1), 30.0)]
    assert lab.reason("a") == "gives way"
    assert lab.exited("a", 143) == [StartWorkers(B, 1, 0, slots("1:0"))]
    assert lab.state("a") is State.QUEUED
    assert lab.round() == []
    lab.exited("b")
    assert lab.round() == [StartWorkers(A, 2, 0, slots("1:0", "1:1"))]


def test_a_job_that_restarts_stops_and_starts_at_its_new_size() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("a", gpus="1..4"))
    lab.wait(100)
    lab.submit(job("b", gpus=2))
    assert lab.round() == [StopWorkers(A, 1, (0, 1, 2, 3), 30.0)]
    assert lab.reason("a") == "to start again at its new size"
    lab.wait(5)
    assert lab.exited("a", 143) == [
        StartWorkers(A, 2, 0, slots("1:0", "1:1")),
        StartWorkers(B, 1, 0, slots("1:2", "1:3")),
    ]
    assert lab.story("a")[-2:] == [State.QUEUED, State.STARTING]


def test_a_resize_does_not_end_a_run() -> None:
    """The accounts of the newest run go on through a restart for a new size."""
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("a", gpus="1..4"))
    lab.wait(100)
    lab.submit(job("b", gpus=2))
    lab.round()
    lab.wait(5)
    lab.exited("a", 143)
    service = lab.job("a").service
    assert (service.last_running_s, service.last_gpu_s) == (105, 420)


def test_a_new_size_that_is_taken_back_while_the_job_stops_ends_the_run() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("a", gpus="1..4"))
    lab.wait(100)
    lab.submit(job("b", gpus=2))
    lab.round()
    lab.submit(job("c", gpus=4, priority=1))
    lab.round()
    lab.exited("a", 143)
    assert lab.state("a") is State.QUEUED
    lab.wait(20)
    lab.started("c")
    lab.exited("c")
    lab.round()
    service = lab.job("a").service
    assert (service.last_running_s, service.last_waiting_s) == (0, 20)


def test_a_live_job_changes_its_members_without_a_stop() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"), live_job("b", gpus=2))
    lab.exited("b")
    grown = slots("1:0", "1:1", "1:2", "1:3")
    assert lab.round() == [ChangeMembership(A, 1, 1, grown, (0, 1, 2, 3))]
    assert (lab.state("a"), lab.job("a").generation) == (State.RUNNING, 1)
    assert lab.job("a").allocation == slots("1:0", "1:1")
    lab.switched("a")
    assert lab.job("a").allocation == grown


def test_both_memberships_are_booked_until_the_switch() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"))
    lab.submit(job("b", gpus=2))
    assert lab.round() == [ChangeMembership(A, 1, 1, slots("1:0", "1:1"), (0, 1))]
    assert lab.job("a").members == slots("1:0", "1:1", "1:2", "1:3")
    assert lab.state("b") is State.QUEUED
    assert lab.switched("a") == [StartWorkers(B, 1, 0, slots("1:2", "1:3"))]
    assert lab.job("a").members == slots("1:0", "1:1")


def test_a_number_is_never_given_twice_in_an_attempt() -> None:
    """A late word about worker 2, who left, is not taken for one about who sits there now."""
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"))
    lab.run(job("b", gpus=2))
    lab.switched("a")
    lab.started("b")
    lab.exited("b")
    grown = slots("1:0", "1:1", "1:2", "1:3")
    assert lab.round() == [ChangeMembership(A, 1, 2, grown, (0, 1, 4, 5))]
    lab.switched("a")
    lab.tell(WorkersExited(A, 1, {2: 1, 3: 1}))
    assert lab.state("a") is State.RUNNING
    lab.exited("a", workers=[0, 1, 4, 5])
    assert lab.state("a") is State.SUCCEEDED


def test_an_old_generation_s_echo_changes_nothing() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"))
    lab.submit(job("b", gpus=2))
    lab.round()
    before = lab.job("a")
    lab.tell(MembershipChanged(A, 1, 0))
    assert lab.job("a") == before
    lab.switched("a")
    after = lab.job("a")
    lab.switched("a")
    assert lab.job("a") == after


def test_a_job_may_finish_while_newcomers_are_on_order() -> None:
    """They are stopped; how they end says nothing about a job that has finished."""
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"), live_job("b", gpus=2))
    lab.exited("b")
    lab.round()
    assert lab.exited("a", 0, workers=[0]) == []
    assert lab.exited("a", 0, workers=[1]) == [StopWorkers(A, 1, (0, 1, 2, 3), 30.0)]
    lab.cancel("a")
    lab.exited("a", 143, workers=[2, 3])
    assert lab.state("a") is State.SUCCEEDED


def test_the_engine_may_know_that_newcomers_came_too_late() -> None:
    """It says of those it never started that they exited with 0."""
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"), live_job("b", gpus=2))
    lab.exited("b")
    lab.round()
    lab.exited("a", 0, workers=[0, 1, 2, 3])
    assert lab.state("a") is State.SUCCEEDED


def test_the_news_of_the_end_may_overtake_that_of_the_switch() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"))
    lab.submit(job("b", gpus=2))
    lab.round()
    lab.exited("a", 0, workers=[0, 1])
    assert lab.switched("a") == [StartWorkers(B, 1, 0, slots("1:2", "1:3"))]
    assert lab.state("a") is State.SUCCEEDED


def test_a_live_job_that_is_in_its_own_way_restarts() -> None:
    """The node has no CPUs for a newcomer beside the leaver."""
    lab = Lab(cluster("1x2/4cpu, 1x1/4cpu"))
    lab.run(live_job("a", cpus=4.0), live_job("b", cpus=4.0))
    assert lab.job("b").allocation == slots("1:0")
    plan = lab.decide()
    moved = Plan({**plan.allocations, B: slots("1:1")}, plan.gpu_types)
    assert lab.commit(moved) == [StopWorkers(B, 1, (0,), 30.0)]
    assert lab.exited("b", 143) == [StartWorkers(B, 2, 0, slots("1:1"))]


def test_time_accounts_follow_the_phases() -> None:
    """As Voda keeps them: `last_` running and GPU time begin anew with each start out of the
    queue, `last_` waiting time with each halt."""
    lab = Lab(cluster("1x2"))
    lab.submit(job("a", gpus=2))
    lab.wait(10)
    lab.round()
    assert lab.job("a").first_started_s == 10
    assert lab.job("a").service == Service(10, waiting_s=10, last_waiting_s=10)
    lab.wait(100)
    lab.hold("a")
    lab.wait(1)
    lab.exited("a", 143)
    ran = Service(111, 101, 10, 202, 101, 10, 202)
    assert lab.job("a").service == ran
    lab.wait(1000)
    lab.release("a")
    lab.wait(7)
    lab.round()
    assert lab.job("a").service == Service(1118, 101, 17, 202, 0, 7, 0)
    assert lab.job("a").first_started_s == 10
