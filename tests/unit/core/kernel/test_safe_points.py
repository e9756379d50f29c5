"""A program that hears us is asked to stop, and told to only when its time is up."""

import pytest

from rota.core.commands import AskToStop, Command, StopWorkers
from rota.core.events import WorkersLost
from rota.core.model import JobId, Stopping
from rota.core.states import State
from tests.builders import Lab, cluster, job

A = JobId("a")
ASK = AskToStop(A, 1, (0, 1), "held by owner", insists_at_s=30.0)
INSIST = StopWorkers(A, 1, (0, 1), grace_s=10.0)
STOP = StopWorkers(A, 1, (0, 1), grace_s=30.0)


def hearing(**more: object) -> Lab:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("a", gpus=2, epochs=10.0, **more))
    lab.progress("a", 0.0, hears=True)
    return lab


def asked() -> Lab:
    lab = hearing()
    assert lab.hold("a") == [ASK]
    return lab


def stopping(lab: Lab) -> Stopping:
    phase = lab.job("a").phase
    assert isinstance(phase, Stopping)
    return phase


def test_who_hears_is_asked_first_and_then_told() -> None:
    lab = asked()
    assert stopping(lab).insists_at_s == 30.0
    assert lab.wait(29.0) == []
    assert lab.wait(1.0) == [INSIST]
    assert stopping(lab).insists_at_s is None
    assert lab.reason("a") == "has not stopped within 30 s of being asked"
    assert lab.wait(1_000.0) == []
    lab.exited("a", 143)
    assert lab.state("a") is State.HELD
    assert lab.reason("a") == "held by owner"


def test_who_stops_in_time_is_not_told() -> None:
    lab = asked()
    lab.exited("a", 75, workers=[0])
    lab.exited("a", 75, workers=[1])
    assert lab.state("a") is State.HELD
    assert lab.wait(100.0) == []


def test_who_does_not_hear_is_told_at_once() -> None:
    lab = Lab(cluster("1x4"))
    lab.run(job("a", gpus=2, epochs=10.0))
    lab.progress("a", 1.0)
    assert lab.hold("a") == [STOP]


def test_who_has_no_grace_period_is_told_at_once() -> None:
    assert hearing(grace_s=0.0).hold("a") == [StopWorkers(A, 1, (0, 1), 0.0)]


def test_hearing_ends_with_the_attempt() -> None:
    lab = asked()
    lab.exited("a", 75)
    lab.release("a")
    lab.round()
    lab.started("a")
    assert lab.job("a").attempt == 2
    assert lab.hold("a") == [StopWorkers(A, 2, (0, 1), 30.0)]


def test_who_begins_to_hear_when_told_to_stop_is_still_told() -> None:
    lab = Lab(cluster("1x4"))
    lab.run(job("a", gpus=2))
    assert lab.hold("a") == [STOP]
    lab.progress("a", 0.5, hears=True)
    assert lab.recover() == [STOP]


def test_a_job_that_gives_way_or_changes_its_size_is_asked() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("a", gpus="1..4", epochs=10.0))
    lab.progress("a", 0.0, hears=True)
    lab.submit(job("b", gpus=2))
    (ask,) = lab.round()
    assert isinstance(ask, AskToStop)
    assert ask.reason == "to start again at its new size"
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("a", gpus=4, epochs=10.0))
    lab.progress("a", 0.0, hears=True)
    lab.submit(job("b", gpus=4, priority=1))
    (ask,) = lab.round()
    assert isinstance(ask, AskToStop)
    assert ask.reason == "gives way"


def test_a_cancelled_job_is_told_at_once() -> None:
    assert hearing().cancel("a") == [STOP]


def test_a_failed_one_too() -> None:
    assert hearing().exited("a", 1, workers=[0]) == [STOP]


def test_and_one_that_reached_its_time_limit() -> None:
    assert hearing(time_limit_s=60.0).wait(60.0) == [STOP]


def test_to_cancel_a_job_that_was_asked_insists_at_once() -> None:
    lab = asked()
    assert lab.cancel("a") == [STOP]
    assert lab.wait(100.0) == []
    lab.exited("a", 143)
    assert lab.state("a") is State.CANCELLED


def test_to_hold_a_job_that_was_asked_to_give_way_changes_only_its_end() -> None:
    lab = Lab(cluster("1x2"), policy="elastic-fifo")
    lab.run(job("a", gpus=2, epochs=10.0))
    lab.progress("a", 0.0, hears=True)
    lab.submit(job("b", gpus=2, priority=1))
    lab.round()
    lab.wait(5.0)
    assert lab.hold("a") == []
    assert stopping(lab).insists_at_s == 30.0
    lab.exited("a", 75)
    assert lab.state("a") is State.HELD


@pytest.mark.parametrize("code", [134, None])
def test_when_a_worker_was_killed_the_others_are_told_at_once(code: int | None) -> None:
    lab = asked()
    lab.wait(5.0)
    if code is None:
        orders = lab.tell(WorkersLost(A, 1, frozenset({1})))
    else:
        orders = lab.exited("a", code, workers=[1])
    assert orders == [INSIST]
    assert lab.wait(1_000.0) == []
    lab.exited("a", 143, workers=[0])
    assert lab.state("a") is State.HELD


def told() -> Lab:
    lab = asked()
    lab.wait(30.0)
    return lab


@pytest.mark.parametrize(("lab", "orders"), [(asked(), [ASK]), (told(), [INSIST])])
def test_after_a_crash_what_holds_is_said_again(lab: Lab, orders: list[Command]) -> None:
    before = lab.job("a")
    assert lab.recover() == orders
    assert lab.job("a") == before


def test_after_a_crash_the_time_is_still_up() -> None:
    lab = asked()
    lab.now = 300.0
    assert lab.recover() == [ASK]
    assert lab.wait(0.0) == [INSIST]


def test_an_exit_after_the_request_is_a_success_if_all_epochs_are_done() -> None:
    lab = asked()
    lab.progress("a", 10.0, saved=9.0)
    lab.exited("a", 0)
    assert lab.state("a") is State.SUCCEEDED


def test_the_way_to_a_safe_point_is_no_part_of_what_a_stop_takes() -> None:
    """It worked on for 20 s after it was asked, and was gone 3 s later."""
    lab = Lab(cluster("1x2"), policy="elastic-fifo")
    lab.run(job("a", gpus=2, epochs=10.0))
    lab.progress("a", 0.5, hears=True)
    lab.submit(job("b", gpus=2, priority=1))
    lab.round()
    lab.wait(20.0)
    lab.progress("a", 1.0)
    lab.wait(3.0)
    lab.exited("a", 75)
    assert lab.job("a").stop_s == 3.0
