"""Commands that could not be executed: what they mean for their job."""

import pytest

from rota.core.lifecycle.command_failures import FailureKind, answer_to_failure, is_due
from rota.core.lifecycle.states import JobState
from rota.core.model.commands import (
    ChangeMembership,
    Command,
    KillWorkers,
    ReportWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.model.events import StartFailed, WorkersExited
from rota.core.model.job import JobId, Queued, Running
from tests.support.builders import Lab, cluster, job, live_job, slots

A, B = JobId("a"), JobId("b")
FULL = "/data: no space left on device"
START = StartWorkers(A, 1, 0, slots("1:0"))


def answer(
    lab: Lab, command: Command, *, kind: FailureKind = FailureKind.TEMPORARY
) -> list[Command]:
    """Tell the kernel what a failed command means; returns the commands that follow."""
    known = lab.kernel.job(command.job_id)
    found = answer_to_failure(command, known, reason=FULL, kind=kind)
    assert not found.is_retried
    return lab.tell(found.event)


def growing() -> tuple[Lab, Command]:
    """A live job on one GPU that is growing to four."""
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("b", gpus=3), live_job("a", gpus="1..4"))
    lab.exited("b")
    [change] = lab.round()
    assert isinstance(change, ChangeMembership)
    assert lab.job("a").newcomers == {1, 2, 3}
    return lab, change


def test_a_start_without_space_waits_in_the_queue_with_the_cause() -> None:
    lab = Lab(cluster("1x4"))
    lab.submit(job("a", gpus=4))
    [start] = lab.round()
    assert answer(lab, start) == [StopWorkers(A, 1, (0, 1, 2, 3), 30.0)]
    assert lab.job("a").members, "a worker may have started: its GPU is not free yet"
    lab.exited("a", 143)
    phase = lab.job("a").phase
    assert isinstance(phase, Queued)
    assert phase.reason == f"cannot start: {FULL}"
    assert (phase.not_before_s - lab.now, lab.job("a").members) == (10.0, ())


def test_a_start_is_retried_with_a_longer_back_off_each_time_and_never_fails_the_job() -> None:
    lab = Lab(cluster("1x1"))
    lab.submit(job("a"))
    waits: list[float] = []
    for _ in range(8):
        [start] = lab.round()
        answer(lab, start)
        lab.exited("a", 143)
        phase = lab.job("a").phase
        assert isinstance(phase, Queued)
        waits.append(phase.not_before_s - lab.now)
        assert lab.round() == []
        lab.wait(waits[-1])
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0]
    found = lab.job("a")
    assert (found.failures, found.idle_attempts, found.deaths) == (0, 0, 0)


def test_other_jobs_use_the_gpus_while_one_backs_off() -> None:
    lab = Lab(cluster("1x1"))
    lab.submit(job("a"), job("b"))
    [start] = lab.round()
    answer(lab, start)
    lab.exited("a", 143)
    assert lab.round() == [StartWorkers(B, 1, 0, slots("1:0"))]


def test_a_start_that_can_never_work_fails_the_job() -> None:
    lab = Lab(cluster("1x1"))
    lab.submit(job("a"))
    [start] = lab.round()
    assert answer(lab, start, kind=FailureKind.PERMANENT) == []
    assert lab.state("a") is JobState.FAILED


@pytest.mark.parametrize("kind", FailureKind)
def test_a_growth_that_fails_is_given_up_and_frees_its_gpus(kind: FailureKind) -> None:
    lab, change = growing()
    assert answer(lab, change, kind=kind) == [KillWorkers(A, 1, (1, 2, 3))]
    lab.exited("a", 137, workers=[1, 2, 3])
    lab.switched("a")
    found = lab.job("a")
    assert isinstance(found.phase, Running)
    assert (found.phase.joining, found.members) == ((), slots("1:3"))
    assert found.cap is not None
    assert (found.cap.workers, FULL in found.cap.why, found.deaths) == (1, True, 0)
    assert lab.round() == [], "the job does not grow again while the cause may last"


def test_a_shrink_that_fails_is_retried() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"))
    lab.submit(job("b", gpus=2))
    [change] = lab.round()
    found = answer_to_failure(change, lab.job("a"), reason=FULL, kind=FailureKind.TEMPORARY)
    assert found.is_retried


def test_stops_kills_and_queries_are_retried() -> None:
    lab = Lab(cluster("1x1"))
    lab.run(job("a"))
    for command in (
        StopWorkers(A, 1, (0,), 30.0),
        KillWorkers(A, 1, (0,)),
        ReportWorkers(A, 1, (0,)),
    ):
        for kind in FailureKind:
            found = answer_to_failure(command, lab.job("a"), reason=FULL, kind=kind)
            assert found.is_retried
            assert "could not be " in found.event.reason
            assert FULL in found.event.reason


def test_a_late_failure_of_an_old_generation_changes_nothing() -> None:
    lab, _ = growing()
    lab.switched("a")
    before = lab.job("a")
    assert lab.tell(StartFailed(A, 1, 0, FULL)) == []
    assert lab.job("a") == before


def test_which_commands_are_due() -> None:
    lab = Lab(cluster("1x4"))
    stop, kill, query = (
        StopWorkers(A, 1, (0,), 0.0),
        KillWorkers(A, 1, (0,)),
        ReportWorkers(A, 1, (0,)),
    )
    lab.submit(job("a"))
    lab.round()
    assert is_due(START, lab.job("a"))
    lab.started("a")
    assert not is_due(START, lab.job("a"))
    assert is_due(kill, lab.job("a"))
    assert is_due(query, lab.job("a"))
    lab.cancel("a")
    assert is_due(stop, lab.job("a"))
    lab.tell(WorkersExited(A, 1, {0: 143}))
    assert [is_due(each, None) for each in (START, stop, kill, query)] == [
        False,
        True,
        False,
        False,
    ]


def test_a_membership_change_is_due_until_a_newer_one_replaces_it() -> None:
    lab, change = growing()
    assert is_due(change, lab.job("a"))
    lab.exited("a", 137, workers=[1])
    assert not is_due(change, lab.job("a"))
    lab.switched("a")
    assert not is_due(change, lab.job("a"))
