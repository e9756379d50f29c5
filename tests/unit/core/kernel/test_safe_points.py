"""A listening program is asked to stop, and stopped only after its grace period."""

import pytest

from rota.core.lifecycle.states import JobState
from rota.core.model.commands import AskToStop, Command, StopWorkers
from rota.core.model.events import WorkersLost
from rota.core.model.job import JobId, Stopping
from tests.support.builders import Lab, cluster, job

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


def test_a_listening_program_is_asked_first_and_then_stopped() -> None:
    lab = asked()
    assert stopping(lab).insists_at_s == 30.0
    assert lab.wait(29.0) == []
    assert lab.wait(1.0) == [INSIST]
    assert stopping(lab).insists_at_s is None
    assert lab.reason("a") == "did not stop within 30 s of the stop request"
    assert lab.wait(1_000.0) == []
    lab.exited("a", 143)
    assert lab.state("a") is JobState.HELD
    assert lab.reason("a") == "held by owner"


def test_a_program_that_stops_in_time_is_not_stopped() -> None:
    lab = asked()
    lab.exited("a", 75, workers=[0])
    lab.exited("a", 75, workers=[1])
    assert lab.state("a") is JobState.HELD
    assert lab.wait(100.0) == []


def test_a_program_that_does_not_listen_is_stopped_at_once() -> None:
    lab = Lab(cluster("1x4"))
    lab.run(job("a", gpus=2, epochs=10.0))
    lab.progress("a", 1.0)
    assert lab.hold("a") == [STOP]


def test_a_program_without_grace_period_is_stopped_at_once() -> None:
    assert hearing(grace_s=0.0).hold("a") == [StopWorkers(A, 1, (0, 1), 0.0)]


def test_listening_ends_with_the_attempt() -> None:
    lab = asked()
    lab.exited("a", 75)
    lab.release("a")
    lab.round()
    lab.started("a")
    assert lab.job("a").attempt == 2
    assert lab.hold("a") == [StopWorkers(A, 2, (0, 1), 30.0)]


def test_a_program_that_starts_to_listen_during_a_stop_is_still_stopped() -> None:
    lab = Lab(cluster("1x4"))
    lab.run(job("a", gpus=2))
    assert lab.hold("a") == [STOP]
    lab.progress("a", 0.5, hears=True)
    assert lab.recover() == [STOP]


def test_a_preempted_or_resized_job_is_asked() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("a", gpus="1..4", epochs=10.0))
    lab.progress("a", 0.0, hears=True)
    lab.submit(job("b", gpus=2))
    (ask,) = lab.round()
    assert isinstance(ask, AskToStop)
    assert ask.reason == "resized from 4 to 2 GPUs for b (priority 0)"
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("a", gpus=4, epochs=10.0))
    lab.progress("a", 0.0, hears=True)
    lab.submit(job("b", gpus=4, priority=1))
    (ask,) = lab.round()
    assert isinstance(ask, AskToStop)
    assert ask.reason == "preempted by b (priority 1)"


def test_a_cancelled_job_is_stopped_at_once() -> None:
    assert hearing().cancel("a") == [STOP]


def test_a_failed_job_is_stopped_at_once() -> None:
    assert hearing().exited("a", 1, workers=[0]) == [STOP]


def test_a_job_at_its_time_limit_is_stopped_at_once() -> None:
    assert hearing(time_limit_s=60.0).wait(60.0) == [STOP]


def test_cancelling_a_job_that_was_asked_stops_it_at_once() -> None:
    lab = asked()
    assert lab.cancel("a") == [STOP]
    assert lab.wait(100.0) == []
    lab.exited("a", 143)
    assert lab.state("a") is JobState.CANCELLED


def test_holding_a_job_during_preemption_changes_only_its_end() -> None:
    lab = Lab(cluster("1x2"), policy="elastic-fifo")
    lab.run(job("a", gpus=2, epochs=10.0))
    lab.progress("a", 0.0, hears=True)
    lab.submit(job("b", gpus=2, priority=1))
    lab.round()
    lab.wait(5.0)
    assert lab.hold("a") == []
    assert stopping(lab).insists_at_s == 30.0
    lab.exited("a", 75)
    assert lab.state("a") is JobState.HELD


@pytest.mark.parametrize("code", [134, None])
def test_when_a_worker_is_killed_the_others_are_stopped_at_once(code: int | None) -> None:
    lab = asked()
    lab.wait(5.0)
    if code is None:
        orders = lab.tell(WorkersLost(A, 1, frozenset({1})))
    else:
        orders = lab.exited("a", code, workers=[1])
    assert orders == [INSIST]
    assert lab.wait(1_000.0) == []
    lab.exited("a", 143, workers=[0])
    assert lab.state("a") is JobState.HELD


def told() -> Lab:
    lab = asked()
    lab.wait(30.0)
    return lab


@pytest.mark.parametrize(("lab", "orders"), [(asked(), [ASK]), (told(), [INSIST])])
def test_after_a_crash_the_stop_request_is_sent_again(lab: Lab, orders: list[Command]) -> None:
    before = lab.job("a")
    assert lab.recover() == orders
    assert lab.job("a") == before


def test_after_a_crash_the_grace_period_still_ends() -> None:
    lab = asked()
    lab.now = 300.0
    assert lab.recover() == [ASK]
    assert lab.wait(0.0) == [INSIST]


def test_an_exit_after_the_request_is_a_success_if_all_epochs_are_done() -> None:
    lab = asked()
    lab.progress("a", 10.0, saved=9.0)
    lab.exited("a", 0)
    assert lab.state("a") is JobState.SUCCEEDED


def test_work_until_the_safe_point_does_not_count_as_stop_time() -> None:
    """The program worked for 20 s after the request and exited 3 s later."""
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
