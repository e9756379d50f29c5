"""User requests in every state of a job."""

import pytest

from rota.core.lifecycle.states import JobState
from rota.core.model.commands import StartWorkers, StopWorkers
from rota.core.model.job import JobId
from tests.support.builders import Lab, cluster, job, slots

A = JobId("a")
STOP = StopWorkers(A, 1, (0, 1), 30.0)


def lab_with_job(state: JobState) -> Lab:
    """A lab with a job on two GPUs in that state, on its first attempt."""
    lab = Lab(cluster("1x4"))
    lab.submit(job("a", gpus=2), is_held=state is JobState.HELD)
    if state in (JobState.HELD, JobState.QUEUED):
        return lab
    lab.round()
    if state is not JobState.STARTING:
        lab.started("a")
    if state is JobState.STOPPING:
        lab.drain(1)
        lab.round()
    assert lab.state("a") is state
    return lab


@pytest.mark.parametrize("state", [JobState.HELD, JobState.QUEUED])
def test_cancelling_a_job_that_does_not_run_ends_it_at_once(state: JobState) -> None:
    lab = lab_with_job(state)
    assert lab.cancel("a") == []
    assert lab.state("a") is JobState.CANCELLED
    assert lab.reason("a") == "cancelled by owner"


@pytest.mark.parametrize(
    ("state", "orders"),
    [(JobState.STARTING, [STOP]), (JobState.RUNNING, [STOP]), (JobState.STOPPING, [])],
)
def test_cancelling_a_job_that_runs_stops_it_first(
    state: JobState, orders: list[StopWorkers]
) -> None:
    lab = lab_with_job(state)
    assert lab.cancel("a") == orders
    assert lab.state("a") is JobState.STOPPING
    lab.exited("a", 143)
    assert lab.state("a") is JobState.CANCELLED


@pytest.mark.parametrize("state", [JobState.HELD, JobState.QUEUED])
def test_holding_a_job_that_does_not_run(state: JobState) -> None:
    lab = lab_with_job(state)
    assert lab.hold("a") == []
    assert lab.state("a") is JobState.HELD
    assert lab.round() == []


@pytest.mark.parametrize(
    ("state", "orders"),
    [(JobState.STARTING, [STOP]), (JobState.RUNNING, [STOP]), (JobState.STOPPING, [])],
)
def test_holding_a_job_that_runs_stops_it_first(state: JobState, orders: list[StopWorkers]) -> None:
    lab = lab_with_job(state)
    assert lab.hold("a") == orders
    lab.exited("a", 143)
    assert lab.state("a") is JobState.HELD
    assert lab.round() == []


def test_releasing_a_held_job_queues_it() -> None:
    lab = lab_with_job(JobState.HELD)
    lab.release("a")
    assert lab.round() == [StartWorkers(A, 1, 0, slots("1:0", "1:1"))]


@pytest.mark.parametrize(
    "state", [JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.STOPPING]
)
def test_releasing_any_other_job_changes_nothing(state: JobState) -> None:
    lab = lab_with_job(state)
    story, before = lab.story("a"), lab.job("a")
    assert lab.release("a") == []
    assert (lab.story("a"), lab.job("a")) == (story, before)


def test_a_release_cancels_a_pending_hold() -> None:
    lab = lab_with_job(JobState.RUNNING)
    lab.hold("a")
    lab.release("a")
    lab.exited("a", 143)
    assert lab.state("a") is JobState.QUEUED
    assert lab.round() == [StartWorkers(A, 2, 0, slots("1:0", "1:1"))]


@pytest.mark.parametrize("order", ["hold first", "cancel first"])
def test_a_cancel_wins_over_a_hold_while_the_job_stops(order: str) -> None:
    lab = lab_with_job(JobState.RUNNING)
    asked = [lab.hold, lab.cancel] if order == "hold first" else [lab.cancel, lab.hold]
    assert asked[0]("a") == [STOP]
    assert asked[1]("a") == []
    lab.release("a")
    lab.exited("a", 143)
    assert lab.state("a") is JobState.CANCELLED


def test_a_cancelled_job_gives_up_its_planned_slots_at_once() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("a", gpus="1..4"))
    lab.submit(job("b", gpus=2))
    lab.round()
    lab.cancel("a")
    assert lab.kernel.wants_round
    lab.round()
    assert lab.exited("a", 143) == [StartWorkers(JobId("b"), 1, 0, slots("1:2", "1:3"))]


def test_a_job_is_stopped_at_its_time_limit() -> None:
    lab = Lab(cluster("1x4"))
    lab.submit(job("a", gpus=2, time_limit_s=100.0))
    lab.wait(50)
    lab.round()
    lab.wait(30)
    lab.started("a")
    assert lab.kernel.next_timer_s() == 150
    assert lab.wait(69) == []
    assert lab.wait(1) == [STOP]
    lab.exited("a", 0)
    assert lab.state("a") is JobState.FAILED
    assert lab.reason("a") == "reached its time limit of 100 s"


def test_the_time_limit_counts_all_attempts_together() -> None:
    lab = Lab(cluster("1x4"))
    lab.run(job("a", time_limit_s=100.0))
    lab.wait(60)
    lab.hold("a")
    lab.exited("a", 143)
    lab.wait(1000)
    lab.release("a")
    lab.round()
    assert lab.kernel.next_timer_s() == lab.now + 40


def test_a_job_waits_for_its_dependencies() -> None:
    lab = Lab(cluster("1x4"))
    lab.submit(job("b", after=(A,)), job("a"))
    assert lab.round() == [StartWorkers(A, 1, 0, slots("1:0"))]
    lab.exited("a")
    assert lab.round() == [StartWorkers(JobId("b"), 1, 0, slots("1:0"))]


@pytest.mark.parametrize("is_held", [True, False])
@pytest.mark.parametrize("is_late", [True, False])
def test_a_failed_dependency_fails_a_job(is_held: bool, is_late: bool) -> None:
    """Also a held job, and a job submitted after the failure."""
    lab = Lab(cluster("1x4"))
    dependent = job("b", after=(A,))
    if not is_late:
        lab.submit(dependent, is_held=is_held)
    lab.run(job("a"))
    lab.exited("a", 1)
    if is_late:
        lab.submit(dependent, is_held=is_held)
    assert lab.state("b") is JobState.FAILED
    assert lab.reason("b") == "dependency a failed"


def test_a_failure_propagates_to_all_dependents_once() -> None:
    lab = Lab(cluster("1x4"))
    b, c = JobId("b"), JobId("c")
    lab.submit(job("a"), job("b", after=(A,)), job("c", after=(A, b)), job("d", after=(c, A)))
    lab.cancel("a")
    assert [lab.story(name) for name in "bcd"] == [[JobState.QUEUED, JobState.FAILED]] * 3
    assert lab.reason("b") == "dependency a was cancelled"


class CountedDependencies(tuple[JobId, ...]):
    """Counts how often the kernel searches it."""

    __slots__ = ()
    searched = 0

    def __contains__(self, job_id: object) -> bool:
        CountedDependencies.searched += 1
        return super().__contains__(job_id)


def test_the_end_of_a_job_does_not_scan_the_other_jobs() -> None:
    lab = Lab(cluster("1x1"))
    names = [f"job-{number}" for number in range(50)]
    lab.submit(*(job(name, after=CountedDependencies()) for name in names))
    for name in names:
        lab.cancel(name)
    assert lab.kernel.jobs == {}
    assert CountedDependencies.searched <= len(names)
