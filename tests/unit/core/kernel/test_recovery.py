"""After a crash: commands are sent again, running workers are adopted, unknown ones are stopped."""

import pytest

from rota.core.kernel.kernel import Kernel
from rota.core.lifecycle.states import JobState
from rota.core.model.commands import (
    ChangeMembership,
    Command,
    ReportWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.model.events import WorkersFound, WorkersLost
from rota.core.model.job import JobId
from tests.support.builders import Lab, cluster, job, live_job, slots

A = JobId("a")
REPORT = ReportWorkers(A, 1, (0, 1))


def starting() -> Lab:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.submit(live_job("a", gpus=2))
    lab.round()
    return lab


def running() -> Lab:
    lab = starting()
    lab.started("a")
    return lab


def stopping() -> Lab:
    lab = running()
    lab.hold("a")
    return lab


def switching() -> Lab:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"), live_job("b", gpus=2))
    lab.exited("b")
    lab.round()
    return lab


def queued() -> Lab:
    lab = Lab()
    lab.submit(job("a"))
    return lab


@pytest.mark.parametrize(
    ("lab", "orders"),
    [
        (queued(), []),
        (starting(), [StartWorkers(A, 1, 0, slots("1:0", "1:1"))]),
        (running(), [REPORT]),
        (stopping(), [StopWorkers(A, 1, (0, 1), 30.0)]),
        (
            switching(),
            [
                ReportWorkers(A, 1, (0, 1, 2, 3)),
                ChangeMembership(A, 1, 1, slots("1:0", "1:1", "1:2", "1:3"), (0, 1, 2, 3)),
            ],
        ),
    ],
)
def test_commands_are_sent_again_with_their_old_fences(lab: Lab, orders: list[Command]) -> None:
    before, booked = lab.job("a"), lab.kernel.ledger.booked()
    assert lab.recover() == orders
    assert lab.job("a") == before
    assert lab.kernel.ledger.booked() == booked
    assert lab.kernel.wants_round


def test_running_jobs_stay_in_their_slots() -> None:
    lab = running()
    lab.recover()
    assert lab.round() == []
    assert lab.tell(WorkersFound(A, 1, frozenset({0, 1}))) == []
    assert lab.state("a") is JobState.RUNNING


def test_a_start_whose_answer_was_lost_is_adopted() -> None:
    lab = starting()
    lab.recover()
    assert lab.tell(WorkersFound(A, 1, frozenset({0, 1}))) == []
    assert lab.state("a") is JobState.RUNNING


def test_a_running_job_of_which_the_engine_knows_nothing_starts_again() -> None:
    lab = running()
    lab.recover()
    lab.tell(WorkersLost(A, 1, frozenset({0, 1})))
    assert lab.round() == [StartWorkers(A, 2, 0, slots("1:0", "1:1"))]


def test_unknown_workers_are_stopped() -> None:
    lab = running()
    lab.recover()
    stranger = WorkersFound(JobId("x"), 7, frozenset({1, 0}))
    assert lab.tell(stranger) == [StopWorkers(JobId("x"), 7, (0, 1), 0.0)]


@pytest.mark.parametrize("how", ["requeued", "over"])
def test_workers_of_an_old_attempt_are_stopped(how: str) -> None:
    lab = running()
    if how == "requeued":
        lab.lose(1)
    else:
        lab.exited("a")
    (order,) = lab.tell(WorkersFound(A, 1, frozenset({0})))
    assert order == StopWorkers(A, 1, (0,), 30.0 if how == "requeued" else 0.0)


def test_a_back_off_goes_on_after_a_crash() -> None:
    lab = Lab(cluster("1x4"))
    lab.run(job("a", retries=1))
    lab.exited("a", 137)
    lab.recover()
    assert lab.round() == []
    assert lab.kernel.next_timer_s() == 10
    lab.wait(10)
    assert lab.round() == [StartWorkers(A, 2, 0, slots("1:0"))]


def test_a_time_limit_holds_after_a_crash() -> None:
    lab = Lab(cluster("1x4"))
    lab.run(job("a", time_limit_s=100.0))
    lab.wait(50)
    lab.recover()
    assert lab.wait(50) == [StopWorkers(A, 1, (0,), 30.0)]


def test_how_jobs_ended_is_known_after_a_crash() -> None:
    lab = Lab(cluster("1x4"))
    lab.run(job("a"))
    lab.submit(job("b", after=(A,)))
    lab.exited("a")
    lab.recover()
    assert lab.round() == [StartWorkers(JobId("b"), 1, 0, slots("1:0"))]


def test_what_a_category_measured_is_known_after_a_crash() -> None:
    lab = Lab(cluster("1x4"))
    lab.run(job("a", category="bert"))
    lab.progress("a", 1, epoch_s=50.0)
    lab.recover()
    lab.submit(job("b", category="bert"))
    assert lab.job("b").speed.epoch_s(1) == 50


def test_stored_category_models_are_restored() -> None:
    """The measuring jobs have ended; a job that was queued before them has no measurements."""
    lab = Lab(cluster("1x1"))
    lab.run(job("a", category="bert", epochs=9.0))
    lab.progress("a", 1, epoch_s=50.0)
    lab.submit(job("waits", category="bert"))
    for epoch in (2, 3, 4):
        lab.progress("a", epoch, epoch_s=80.0)
    lab.exited("a")
    measured = dict(lab.kernel.speeds)
    assert measured["bert"].epoch_s(1) == 80
    saved = lab.store.load()
    lab.kernel = Kernel(lab.kernel.rules)
    lab.kernel.recover(
        saved.jobs, saved.nodes, outcomes=saved.outcomes, now=lab.now, speeds=measured
    )
    lab.submit(job("b", category="bert"))
    assert lab.job("b").speed.epoch_s(1) == 80
