"""Edits of jobs that wait or run."""

from rota.core.lifecycle.states import JobState
from rota.core.model.events import JobEdited
from rota.core.model.job import JobId
from tests.support.builders import Lab, cluster, job

A, B = JobId("a"), JobId("b")


def test_a_job_with_a_raised_priority_comes_first() -> None:
    lab = Lab(cluster("1x1"), policy="fifo")
    lab.submit(job("a"), job("b"))
    assert set(lab.decide().allocations) == {A}
    lab.tell(JobEdited(B, "owner", priority=5))
    assert set(lab.decide().allocations) == {B}
    assert lab.reason("b") == "priority set to 5 (was 0) by owner"


def test_the_history_names_all_changes() -> None:
    lab = Lab(cluster("1x1"))
    lab.submit(job("a", time_limit_s=90.0))
    lab.tell(
        JobEdited(
            A,
            "owner",
            name="c",
            priority=0,
            time_limit_s=7200.0,
            retries=2,
            retry_on=frozenset({75, 3}),
            gpu_types=("V100",),
            cpus=4.0,
            memory_bytes=2**31,
        )
    )
    assert lab.reason("a") == (
        "name set to c (was a), time limit set to 2h (was 1m30s), retries set to 2 (was 0),"
        " retry on set to 3, 75 (was every failure), gpu types set to V100 (was any),"
        " cpus set to 4 (was no limit), memory set to 2GiB (was no limit) by owner"
    )


def test_an_edit_without_a_change_leaves_no_trace() -> None:
    lab = Lab(cluster("1x1"))
    lab.submit(job("a"))
    before = lab.job("a")
    lab.tell(JobEdited(A, "owner", name="a", retries=0, gpu_types=()))
    assert lab.job("a") is before
    assert lab.story("a") == [JobState.QUEUED]


def test_a_longer_time_limit_of_a_running_job_sets_its_timer_anew() -> None:
    lab = Lab(cluster("1x1"))
    lab.run(job("a", time_limit_s=100.0))
    lab.wait(50)
    lab.tell(JobEdited(A, "owner", time_limit_s=200.0))
    lab.wait(149)
    assert lab.state("a") is JobState.RUNNING
    lab.wait(1)
    assert lab.state("a") is JobState.STOPPING
    assert lab.reason("a") == "reached its time limit of 200 s"


def test_a_time_limit_that_has_passed_stops_the_job_at_once() -> None:
    lab = Lab(cluster("1x1"))
    lab.run(job("a"))
    lab.wait(50)
    lab.tell(JobEdited(A, "owner", time_limit_s=10.0))
    assert lab.kernel.next_timer_s() <= lab.now
    lab.wait(0)
    assert lab.state("a") is JobState.STOPPING


def test_a_removed_time_limit_stops_no_job() -> None:
    lab = Lab(cluster("1x1"))
    lab.run(job("a", time_limit_s=100.0))
    lab.tell(JobEdited(A, "owner", time_limit_s=float("inf")))
    lab.wait(1000)
    assert lab.state("a") is JobState.RUNNING


def test_a_planned_job_that_needs_another_gpu_type_does_not_start_in_its_old_slots() -> None:
    lab = Lab(cluster("1x1"), policy="fifo")
    lab.run(job("a"))
    lab.submit(job("c", priority=2))
    lab.round()
    assert lab.state("a") is JobState.STOPPING
    lab.tell(JobEdited(JobId("c"), "owner", gpu_types=("H100",)))
    lab.exited("a")
    assert lab.state("c") is JobState.QUEUED


def test_a_running_job_keeps_the_resources_that_it_has_booked() -> None:
    lab = Lab(cluster("1x1"))
    lab.run(job("a"))
    lab.tell(JobEdited(A, "owner", gpu_types=("H100",), cpus=2.0, retries=1))
    assert (lab.job("a").spec.gpu_types, lab.job("a").spec.cpus) == ((), 0.0)
    assert lab.job("a").spec.retries == 1


def test_an_edit_survives_a_crash() -> None:
    lab = Lab(cluster("1x1"))
    lab.submit(job("a"))
    lab.tell(JobEdited(A, "owner", name="new", time_limit_s=5.0))
    edited = lab.job("a")
    lab.recover()
    assert lab.job("a") == edited
