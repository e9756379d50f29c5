"""Requested stops, checkpoints, and which workers may join."""

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.live.elastic_job import EPOCHS, ElasticJob, check, finish, wait_until

Start = Callable[..., ElasticJob]


def running(start_job: Start, n_workers: int, **options: Any) -> ElasticJob:
    job = start_job(epochs=EPOCHS, **options)
    job.coordinator.want(*range(n_workers))
    job.coordinator.wait_for_generation()
    job.coordinator.wait_for_steps(2)
    return job


def check_that_others_go_on(job: ElasticJob) -> None:
    """Check that the next attempt continues where all three workers stopped."""
    assert job.coordinator.wait_for_ends(0, 1, 2) == [75, 75, 75]
    stopped_at = job.last_step()
    job.coordinator.start_again(3, 4)
    job.coordinator.wait_for_generation()
    finish(job, 3, 4)
    check(job)
    assert min(note["step"] for note in job.notes("step") if note["worker"] >= 3) == stopped_at + 1


def test_requested_stop_is_after_the_same_step_and_the_next_attempt_resumes(
    start_job: Start,
) -> None:
    job = running(start_job, 3)
    job.coordinator.ask_to_stop("preempted")
    check_that_others_go_on(job)


def test_sigterm_to_one_worker_stops_only_that_worker(start_job: Start) -> None:
    """A cluster that evicts one pod sends such a SIGTERM."""
    job = running(start_job, 3)
    job.coordinator.kill(0, by=signal.SIGTERM)
    assert job.coordinator.wait_for_ends(0) == [75]
    job.coordinator.wait_for_generation()
    finish(job, 1, 2)
    check(job)


def test_sigterm_to_all_workers_stops_all_and_the_next_attempt_resumes(start_job: Start) -> None:
    job = running(start_job, 3)
    job.coordinator.reacts = False
    job.coordinator.kill(0, 1, 2, by=signal.SIGTERM)
    check_that_others_go_on(job)


def test_death_of_the_first_worker_during_a_save_loses_no_checkpoint(start_job: Start) -> None:
    job = start_job(epochs=EPOCHS)
    job.own_options[0] = {"saves_for_ever": True}
    job.coordinator.want(0, 1)
    job.coordinator.wait_for_generation()
    job.coordinator.wait_for_steps(2)
    job.coordinator.ask_to_stop("preempted")
    wait_until(lambda: bool(job.notes("saving")))
    for _ in range(2):  # The other worker waits for it, and still reports.
        heard_s = job.coordinator.heard_s[1]
        job.coordinator.wait_until(lambda before_s=heard_s: job.coordinator.heard_s[1] > before_s)
    job.coordinator.kill(0)
    assert job.coordinator.wait_for_ends(0, 1) == [-signal.SIGKILL, 75]
    stopped_at = job.last_step()
    job.coordinator.start_again(2)
    job.coordinator.wait_for_generation()
    finish(job, 2)
    check(job)
    assert min(note["step"] for note in job.notes("step") if note["worker"] == 2) == stopped_at + 1


def test_worker_that_waits_for_members_can_be_stopped(start_job: Start) -> None:
    """Below the minimum size, the survivors get a stop request instead of a new generation."""
    job = running(start_job, 2)
    job.coordinator.reacts = False
    job.coordinator.kill(0)
    job.coordinator.wait_for_ends(0)
    job.coordinator.ask_to_stop("below the minimum")
    assert job.coordinator.wait_for_ends(1) == [75]
    job.coordinator.start_again(3)
    job.coordinator.wait_for_generation()
    finish(job, 3)
    check(job)


def test_checkpoints_are_written_during_training(start_job: Start) -> None:
    job = running(start_job, 2, save_every_s=0.2)
    job.wait_for_checkpoint()
    job.coordinator.kill(0, 1)
    job.coordinator.wait_for_ends(0, 1)
    job.coordinator.start_again(2)
    job.coordinator.wait_for_generation()
    finish(job, 2)
    check(job)
    assert min(note["step"] for note in job.notes("step") if note["worker"] == 2) > 1


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"width": 9}, "the checkpoint does not fit this training"),
        ({"samples": 202}, "within an epoch of 203 samples, but the dataset has 202"),
    ],
)
def test_checkpoint_of_another_job_is_rejected(
    start_job: Start, other: dict[str, Any], words: str
) -> None:
    job = running(start_job, 1)
    job.coordinator.ask_to_stop("preempted")
    assert job.coordinator.wait_for_ends(0) == [75]
    job.own_options[1] = other
    job.coordinator.start_again(1)
    assert job.coordinator.wait_for_ends(1) == [1]
    assert words in job.log(1)
    assert not [note for note in job.notes("step") if note["worker"] == 1]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"code": "changed"}, "code changed"),
        ({"torch": "1.0.0"}, "torch 1.0.0"),
        ({"samples": 202}, "dataset of 202"),
        ({"width": 9}, "model"),
    ],
)
def test_incompatible_worker_may_not_join(
    start_job: Start, other: dict[str, Any], words: str
) -> None:
    job = running(start_job, 2)
    job.own_options[2] = other
    job.coordinator.want(0, 1, 2)
    assert job.coordinator.wait_for_ends(2) == [78]
    assert "may not join" in job.log(2)
    assert words in job.log(2)
    job.coordinator.wait_for_generation()
    finish(job, 0, 1)
    check(job)
