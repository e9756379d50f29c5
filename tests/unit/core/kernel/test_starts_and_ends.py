"""A job from the queue to its end, and the meaning of exit codes."""

import pytest

from rota.core.lifecycle import states
from rota.core.lifecycle.states import JobState, Trigger
from rota.core.model.commands import StartWorkers, StopWorkers
from rota.core.model.events import (
    JobSubmitted,
    ProgressReported,
    WorkersExited,
    WorkersHindered,
    WorkersStarted,
)
from rota.core.model.job import JobId, Queued
from rota.daemon.jobs.views import job_view
from tests.support.builders import Lab, cluster, job, slots

A = JobId("a")


def new_lab() -> Lab:
    return Lab(cluster("1x8"))


def test_a_submitted_job_starts_in_the_next_round() -> None:
    lab = new_lab()
    assert lab.submit(job("a", gpus=2)) == []
    assert lab.state("a") is JobState.QUEUED
    assert lab.kernel.wants_round
    assert lab.round() == [StartWorkers(A, 1, 0, slots("1:0", "1:1"))]
    assert lab.state("a") is JobState.STARTING


def test_a_job_runs_when_all_its_workers_have_started() -> None:
    lab = new_lab()
    lab.submit(job("a", gpus=2))
    lab.round()
    lab.started("a", workers=[1])
    assert lab.state("a") is JobState.STARTING
    lab.started("a", workers=[0])
    assert lab.state("a") is JobState.RUNNING


def test_a_hindrance_is_recorded_once_and_shown_until_the_start() -> None:
    lab = new_lab()
    lab.submit(job("a", gpus=2))
    lab.round()
    for worker, attempt in ((0, 1), (1, 1), (0, 7)):
        lab.tell(WorkersHindered(A, attempt, frozenset({worker}), "no such image"))
    assert lab.story("a") == [JobState.QUEUED, JobState.STARTING, JobState.STARTING]
    reason = "cannot start: no such image"
    assert job_view(lab.job("a"), now=lab.now).reason == lab.reason("a") == reason
    assert lab.recover() == [StartWorkers(A, 1, 0, slots("1:0", "1:1"))]
    lab.started("a", workers=[0, 1])
    assert job_view(lab.job("a"), now=lab.now).reason == ""
    lab.tell(WorkersHindered(A, 1, frozenset({2}), "no such image"))
    assert lab.reason("a") == reason
    assert lab.state("a") is JobState.RUNNING


def test_a_job_succeeds_when_all_its_workers_have_exited_with_0() -> None:
    lab = new_lab()
    lab.run(job("a", gpus=2))
    lab.progress("a", 10)
    assert lab.exited("a", workers=[0]) == []
    assert lab.state("a") is JobState.RUNNING
    assert lab.exited("a", workers=[1]) == []
    assert lab.story("a") == [
        JobState.QUEUED,
        JobState.STARTING,
        JobState.RUNNING,
        JobState.SUCCEEDED,
    ]
    assert lab.reason("a") == ""
    assert lab.kernel.ledger.booked() == {}


def test_an_exit_with_0_before_the_last_epoch_is_reported() -> None:
    lab = new_lab()
    lab.run(job("a", epochs=90.0))
    lab.progress("a", 30)
    lab.exited("a")
    assert lab.state("a") is JobState.SUCCEEDED
    assert lab.reason("a") == "ended early at epoch 30 of 90"


def test_exits_may_arrive_before_the_start() -> None:
    lab = new_lab()
    lab.submit(job("a"))
    lab.round()
    lab.exited("a")
    assert lab.state("a") is JobState.SUCCEEDED


@pytest.mark.parametrize("code", [1, 3, 127, 137])
def test_any_failure_is_retried(code: int) -> None:
    lab = new_lab()
    lab.run(job("a", retries=5))
    for _ in range(5):
        lab.exited("a", code)
        assert lab.reason("a") == f"exit code {code}, will be retried"
        lab.wait(600)
        lab.round()
        lab.started("a")
    lab.exited("a", code)
    assert lab.state("a") is JobState.FAILED
    assert lab.reason("a") == f"exit code {code}, no retries left"


@pytest.mark.parametrize("code", [1, 74, 137])
def test_other_exit_codes_than_those_in_retry_on_are_not_retried(code: int) -> None:
    lab = new_lab()
    lab.run(job("a", retries=3, retry_on=frozenset({75, 76})))
    assert lab.exited("a", code) == []
    assert lab.state("a") is JobState.FAILED
    assert lab.reason("a") == f"exit code {code}; not retried: retry_on has only 75, 76"


def test_time_limit_is_not_retried_and_the_reason_says_so() -> None:
    lab = new_lab()
    lab.run(job("a", retries=3, time_limit_s=60.0))
    lab.wait(60.0)
    lab.exited("a", 143)
    assert lab.state("a") is JobState.FAILED
    why = "not retried: a time limit is no failure of the program"
    assert lab.reason("a") == f"reached its time limit of 60 s; {why}"


def test_an_exit_code_in_retry_on_is_retried() -> None:
    lab = new_lab()
    lab.run(job("a", retries=3, retry_on=frozenset({75})))
    lab.exited("a", 75)
    assert lab.state("a") is JobState.QUEUED
    assert lab.reason("a") == "exit code 75, will be retried"


def test_a_signal_is_retried_with_a_back_off_that_doubles() -> None:
    lab = new_lab()
    lab.run(job("a", retries=3))
    for attempt, backoff_s in ((1, 10.0), (2, 20.0), (3, 40.0)):
        assert lab.job("a").attempt == attempt
        lab.progress("a", attempt)
        lab.exited("a", 137)
        until_s, why = lab.now + backoff_s, "exit code 137, will be retried"
        assert lab.job("a").phase == Queued(lab.now, not_before_s=until_s, reason=why)
        assert lab.round() == []
        assert lab.kernel.next_timer_s() == lab.now + backoff_s
        lab.wait(backoff_s)
        assert lab.kernel.wants_round
        assert lab.round() == [StartWorkers(A, attempt + 1, 0, slots("1:0"))]
        lab.started("a")
    lab.progress("a", 9)
    lab.exited("a", 137)
    assert lab.state("a") is JobState.FAILED
    assert lab.reason("a") == "exit code 137, no retries left"


def test_three_attempts_in_a_row_without_progress_fail_a_job() -> None:
    lab = new_lab()
    lab.run(job("a", retries=100))
    lab.progress("a", 1)
    for _ in range(3):
        assert lab.state("a") is JobState.RUNNING
        lab.exited("a", 139)
        lab.wait(600)
        lab.round()
        lab.started("a")
    assert lab.state("a") is JobState.RUNNING
    lab.exited("a", 139)
    assert lab.state("a") is JobState.FAILED
    assert lab.reason("a") == "exit code 139; not retried: 3 attempts in a row made no progress"


def test_when_one_worker_fails_the_others_are_stopped_and_the_job_fails() -> None:
    lab = new_lab()
    lab.run(job("a", gpus=3))
    assert lab.exited("a", 1, workers=[1]) == [StopWorkers(A, 1, (0, 1, 2), 30.0)]
    assert lab.state("a") is JobState.STOPPING
    lab.exited("a", 143, workers=[0, 2])
    assert lab.state("a") is JobState.FAILED
    assert lab.reason("a") == "exit code 1"


def test_when_one_worker_is_killed_the_job_is_retried() -> None:
    lab = new_lab()
    lab.run(job("a", gpus=2, retries=1))
    lab.exited("a", 137, workers=[0])
    lab.exited("a", 143, workers=[1])
    assert lab.state("a") is JobState.QUEUED
    assert lab.job("a").failures == 1


def test_any_exit_code_after_a_stop_request_is_a_stop() -> None:
    for code in (0, 1, 143):
        lab = new_lab()
        lab.run(job("a"))
        lab.hold("a")
        lab.exited("a", code)
        assert lab.state("a") is JobState.HELD


def test_a_stop_after_all_epochs_is_a_success() -> None:
    lab = new_lab()
    lab.run(job("a", epochs=10.0))
    lab.hold("a")
    lab.progress("a", 10)
    lab.exited("a", 143)
    assert lab.state("a") is JobState.SUCCEEDED


def test_repeated_and_old_events_change_nothing() -> None:
    lab = new_lab()
    lab.submit(job("a", gpus=2, retries=1), job("a", gpus=4))
    assert lab.job("a").spec.max_workers == 2
    lab.round()
    lab.started("a")
    lab.exited("a", 137, workers=[0])
    lab.exited("a", 1, workers=[0])
    lab.hold("a")
    lab.exited("a", 143, workers=[1])
    lab.release("a")
    lab.round()
    before = lab.job("a")
    assert before.attempt == 2
    for echo in (
        WorkersStarted(A, 1, frozenset({0, 1})),
        WorkersExited(A, 1, {0: 1, 1: 1}),
        ProgressReported(A, 1, 9.0),
        JobSubmitted(A, job("a")),
        WorkersStarted(JobId("nobody"), 1, frozenset({0})),
    ):
        assert lab.tell(echo) == []
        assert lab.job("a") == before


def test_an_ended_job_stays_ended() -> None:
    lab = new_lab()
    lab.run(job("a"))
    lab.exited("a")
    story = lab.story("a")
    lab.cancel("a")
    lab.submit(job("a"))
    lab.tell(WorkersExited(A, 1, {0: 1}))
    assert lab.story("a") == story


@pytest.mark.parametrize("epochs", [float("nan"), float("inf"), -1.0, 2.0, 11.0])
def test_invalid_progress_is_ignored(epochs: float) -> None:
    lab = new_lab()
    lab.run(job("a", epochs=10.0))
    lab.progress("a", 3)
    lab.progress("a", epochs)
    assert lab.job("a").epochs_done == 3


def test_an_unlisted_transition_holds_only_that_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forced by tearing an entry out of the table. The job is stopped, because who knows what
    it holds, and held for somebody to look at it."""
    lab = new_lab()
    lab.run(job("a"), job("b"))
    torn = dict(states.TABLE[JobState.RUNNING])
    del torn[Trigger.FINISHED]
    monkeypatch.setattr(states, "TABLE", {**states.TABLE, JobState.RUNNING: torn})
    assert lab.exited("a") == [StopWorkers(A, 1, (0,), 30.0)]
    bug = "the state table has no entry for 'finished' in state 'running'"
    assert lab.reason("a") == f"held because of a bug in rota: {bug}"
    lab.tell(WorkersExited(A, 1, {0: 0}))
    assert lab.state("a") is JobState.HELD
    monkeypatch.undo()
    lab.release("a")
    assert lab.round() == [StartWorkers(A, 2, 0, slots("1:0"))]
    assert lab.state("b") is JobState.RUNNING
    lab.exited("b")
    assert lab.state("b") is JobState.SUCCEEDED
