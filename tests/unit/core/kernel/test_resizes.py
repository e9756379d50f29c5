"""Jobs that are preempted, restarted, resized and moved."""

from rota.core.lifecycle.states import JobState
from rota.core.model.commands import ChangeMembership, StartWorkers, StopWorkers
from rota.core.model.events import MembershipChanged, WorkersExited
from rota.core.model.job import JobId, ServiceTime
from rota.core.scheduling.plan import Plan
from tests.support.builders import Lab, cluster, job, live_job, slots

A, B = JobId("a"), JobId("b")


def test_a_preempted_job_starts_again_when_there_is_room() -> None:
    lab = Lab(cluster("1x2"))
    lab.run(job("a", gpus=2))
    lab.submit(job("b", gpus=1, priority=1, user="bea"))
    assert lab.round() == [StopWorkers(A, 1, (0, 1), 30.0)]
    assert lab.reason("a") == "preempted by b (bea, priority 1)"
    assert lab.exited("a", 143) == [StartWorkers(B, 1, 0, slots("1:0"))]
    assert lab.state("a") is JobState.QUEUED
    assert lab.round() == []
    lab.exited("b")
    assert lab.round() == [StartWorkers(A, 2, 0, slots("1:0", "1:1"))]


def test_a_job_that_restarts_stops_and_starts_at_its_new_size() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("a", gpus="1..4"))
    lab.wait(100)
    lab.submit(job("b", gpus=2))
    assert lab.round() == [StopWorkers(A, 1, (0, 1, 2, 3), 30.0)]
    assert lab.reason("a") == "resized from 4 to 2 GPUs for b (priority 0)"
    lab.wait(5)
    assert lab.exited("a", 143) == [
        StartWorkers(A, 2, 0, slots("1:0", "1:1")),
        StartWorkers(B, 1, 0, slots("1:2", "1:3")),
    ]
    assert lab.story("a")[-2:] == [JobState.QUEUED, JobState.STARTING]


def test_a_resize_does_not_end_a_run() -> None:
    """The service time of the newest run continues through a restart at a new size."""
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("a", gpus="1..4"))
    lab.wait(100)
    lab.submit(job("b", gpus=2))
    lab.round()
    lab.wait(5)
    lab.exited("a", 143)
    service = lab.job("a").service
    assert (service.last_running_s, service.last_gpu_s) == (105, 420)


def test_a_new_size_withdrawn_during_the_stop_ends_the_run() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("a", gpus="1..4"))
    lab.wait(100)
    lab.submit(job("b", gpus=2))
    lab.round()
    lab.submit(job("c", gpus=4, priority=1))
    lab.round()
    lab.exited("a", 143)
    assert lab.state("a") is JobState.QUEUED
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
    assert lab.reason("a") == "resized from 2 to 4 GPUs"
    assert (lab.state("a"), lab.job("a").generation) == (JobState.RUNNING, 1)
    assert lab.job("a").allocation == slots("1:0", "1:1")
    lab.switched("a")
    assert lab.job("a").allocation == grown


def test_a_move_from_a_drained_node_has_its_own_words() -> None:
    lab = Lab(cluster("2x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus=2))
    lab.drain(1)
    lab.round()
    assert lab.reason("a") == "moved to other GPUs: node-01 is drained"


def test_both_memberships_are_booked_until_the_switch() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"))
    lab.submit(job("b", gpus=2))
    assert lab.round() == [ChangeMembership(A, 1, 1, slots("1:0", "1:1"), (0, 1))]
    assert lab.job("a").members == slots("1:0", "1:1", "1:2", "1:3")
    assert lab.state("b") is JobState.QUEUED
    assert lab.switched("a") == [StartWorkers(B, 1, 0, slots("1:2", "1:3"))]
    assert lab.job("a").members == slots("1:0", "1:1")


def test_a_worker_number_is_used_once_in_an_attempt() -> None:
    """A late event about worker 2, which left, is not taken for one about its successor."""
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
    assert lab.state("a") is JobState.RUNNING
    lab.exited("a", workers=[0, 1, 4, 5])
    assert lab.state("a") is JobState.SUCCEEDED


def test_a_late_report_of_an_old_generation_is_ignored() -> None:
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


def test_a_job_may_finish_while_new_workers_are_starting() -> None:
    """The new workers are stopped; their exits do not matter."""
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"), live_job("b", gpus=2))
    lab.exited("b")
    lab.round()
    assert lab.exited("a", 0, workers=[0]) == []
    assert lab.exited("a", 0, workers=[1]) == [StopWorkers(A, 1, (0, 1, 2, 3), 30.0)]
    lab.cancel("a")
    lab.exited("a", 143, workers=[2, 3])
    assert lab.state("a") is JobState.SUCCEEDED


def test_new_workers_that_never_started_count_as_exited_with_0() -> None:
    """The engine reports exit code 0 for workers that it never started."""
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"), live_job("b", gpus=2))
    lab.exited("b")
    lab.round()
    lab.exited("a", 0, workers=[0, 1, 2, 3])
    assert lab.state("a") is JobState.SUCCEEDED


def test_exits_may_arrive_before_the_membership_change() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"))
    lab.submit(job("b", gpus=2))
    lab.round()
    lab.exited("a", 0, workers=[0, 1])
    assert lab.switched("a") == [StartWorkers(B, 1, 0, slots("1:2", "1:3"))]
    assert lab.state("a") is JobState.SUCCEEDED


def test_a_live_job_that_blocks_its_own_resize_restarts() -> None:
    """The node has no CPUs for a new worker beside the leaving one."""
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
    assert lab.job("a").service == ServiceTime(10, waiting_s=10, last_waiting_s=10)
    lab.wait(100)
    lab.hold("a")
    lab.wait(1)
    lab.exited("a", 143)
    ran = ServiceTime(111, 101, 10, 202, 101, 10, 202)
    assert lab.job("a").service == ran
    lab.wait(1000)
    lab.release("a")
    lab.wait(7)
    lab.round()
    assert lab.job("a").service == ServiceTime(1118, 101, 17, 202, 0, 7, 0)
    assert lab.job("a").first_started_s == 10
