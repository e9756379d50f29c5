"""Failures with a known cause: their reason texts and their retries."""

from typing import Any

import pytest

from rota.core.lifecycle.states import JobState
from rota.core.model.events import WorkersLost
from rota.core.model.job import JobId
from tests.support.builders import Lab, cluster, job

OOM: dict[str, Any] = {"finding": "the GPU ran out of memory (OOM)"}
ECC: dict[str, Any] = {"finding": "the GPU's memory is damaged (ECC)", "is_retriable": True}
A = JobId("a")


def running(**spec: Any) -> Lab:
    lab = Lab(cluster("1x8"))
    lab.run(job("a", **spec))
    return lab


def go_on(lab: Lab) -> None:
    """The next attempt, after its back-off."""
    lab.wait(600)
    lab.round()
    lab.started("a")


def test_a_finding_is_part_of_the_reason() -> None:
    lab = running()
    lab.exited("a", 1, **OOM)
    assert lab.state("a") is JobState.FAILED
    assert lab.reason("a") == "exit code 1: the GPU ran out of memory (OOM)"


def test_the_engines_reason_comes_after_the_finding() -> None:
    lab = running()
    lab.exited("a", 1, **OOM, reason="9 bytes of output were dropped")
    assert lab.reason("a") == (
        "exit code 1: the GPU ran out of memory (OOM); 9 bytes of output were dropped"
    )


def test_a_reason_alone_does_not_change_retries() -> None:
    lab = running(retries=1)
    lab.exited("a", 137, reason="ended by SIGKILL")
    assert lab.reason("a") == "exit code 137: ended by SIGKILL; will be retried"
    go_on(lab)
    lab.exited("a", 137, reason="ended by SIGKILL")
    assert lab.reason("a") == "exit code 137: ended by SIGKILL; no retries left"


@pytest.mark.parametrize(("retries", "n_attempts"), [(0, 3), (1, 3), (2, 3), (4, 5)])
def test_a_retriable_failure_is_retried_without_requested_retries(
    retries: int, n_attempts: int
) -> None:
    lab = running(retries=retries)
    for attempt in range(1, n_attempts):
        lab.progress("a", attempt)
        lab.exited("a", 1, **ECC)
        assert lab.state("a") is JobState.QUEUED
        assert lab.reason("a") == (
            "exit code 1: the GPU's memory is damaged (ECC); will be retried"
        )
        go_on(lab)
    lab.progress("a", n_attempts)
    lab.exited("a", 1, **ECC)
    assert lab.state("a") is JobState.FAILED
    assert lab.reason("a") == "exit code 1: the GPU's memory is damaged (ECC); no retries left"


def test_a_retriable_failure_without_progress_fails_after_three_attempts() -> None:
    lab = running(retries=9)
    for _ in range(2):
        lab.exited("a", 1, **ECC)
        go_on(lab)
    lab.exited("a", 1, **ECC)
    assert lab.state("a") is JobState.FAILED
    assert lab.reason("a").endswith("3 attempts in a row made no progress")


def test_a_later_non_retriable_failure_fails_the_job_at_once() -> None:
    lab = running()
    lab.exited("a", 1, **ECC)
    go_on(lab)
    lab.exited("a", 1, **OOM)
    assert lab.state("a") is JobState.FAILED


def test_the_first_failed_worker_gives_the_reason() -> None:
    """The others go because they are stopped; what that looks like in their logs is no news."""
    lab = running(gpus=2)
    lab.exited("a", 1, workers=[1], **OOM)
    lab.exited("a", 1, workers=[0], finding="lost a connection (connect)", is_retriable=True)
    assert lab.state("a") is JobState.FAILED
    assert lab.reason("a") == "exit code 1: the GPU ran out of memory (OOM)"


def test_killed_workers_are_named_in_the_history() -> None:
    lab = running(gpus=2, time_limit_s=60.0)
    lab.wait(60)
    lab.exited("a", 143, workers=[0])
    lab.exited("a", 137, workers=[1], reason="did not end within its grace period and was killed")
    assert lab.state("a") is JobState.FAILED
    assert lab.reason("a") == (
        "reached its time limit of 60 s; "
        "worker 1: did not end within its grace period and was killed"
    )


def test_a_success_has_the_engines_reason_too() -> None:
    lab = running(epochs=1.0)
    lab.exited("a", 0, reason="left 1 process behind, which was ended")
    assert lab.state("a") is JobState.SUCCEEDED
    assert lab.reason("a") == "left 1 process behind, which was ended"


def test_a_lost_worker_may_have_a_reason() -> None:
    lab = running()
    lab.tell(WorkersLost(A, 1, frozenset({0}), "its keeper died"))
    assert lab.state("a") is JobState.QUEUED
    assert lab.reason("a") == "worker lost: its keeper died"
