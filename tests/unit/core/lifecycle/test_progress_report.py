"""Progress reports of a program: progress, saved work and total work."""

import math

import pytest

from rota.core.estimation.remaining_time import finish
from rota.core.lifecycle.states import JobState
from rota.core.model.events import ProgressReported, WorkersLost
from rota.core.model.job import Estimate, JobId
from rota_trainer.reporting.limits import MOST_EPOCHS
from tests.support.builders import Lab, cluster, job

A = JobId("a")


def running(**more: object) -> Lab:
    lab = Lab(cluster("1x4"))
    lab.run(job("a", **{"epochs": 10.0, "retries": 9, **more}))
    return lab


def again(lab: Lab) -> None:
    lab.wait(600)
    lab.round()
    lab.started("a")


def test_unsaved_work_is_repeated_and_reported() -> None:
    lab = running()
    lab.progress("a", 3.0, 90.0, saved=3.0)
    lab.progress("a", 3.4, saved=3.0)
    lab.hold("a")
    lab.exited("a", 143)
    assert lab.reason("a") == "held by owner; 0.4 epochs (36 s) lost"
    assert (lab.job("a").epochs_done, lab.job("a").epochs_saved) == (3.0, 3.0)
    assert lab.job("a").lost_s == pytest.approx(36.0)


def test_whole_epochs_count_as_saved_without_a_report() -> None:
    lab = running()
    lab.progress("a", 3.75, 8.0)
    lab.exited("a", 137)
    assert lab.reason("a") == "exit code 137, will be retried; 0.75 epochs (6 s) lost"
    assert lab.job("a").epochs_done == 3.0


def test_no_lost_work_is_not_mentioned() -> None:
    lab = running()
    lab.progress("a", 3.4, saved=3.4)
    lab.hold("a")
    lab.exited("a", 143)
    assert lab.reason("a") == "held by owner"
    assert (lab.job("a").epochs_done, lab.job("a").lost_s) == (3.4, 0.0)


def test_before_the_first_epoch_is_measured_the_time_since_the_start_is_lost() -> None:
    lab = running()
    lab.wait(50)
    lab.progress("a", 0.8)
    lab.tell(WorkersLost(A, 1, frozenset({0})))
    assert lab.reason("a") == "worker lost with its node; 0.8 epochs (50 s) lost"


def test_losses_add_up_over_attempts() -> None:
    lab = running()
    for _ in range(2):
        lab.progress("a", 0.5, 10.0)
        lab.exited("a", 137)
        again(lab)
    assert lab.job("a").lost_s == pytest.approx(10.0)


def test_a_job_that_succeeds_loses_nothing() -> None:
    lab = running()
    lab.progress("a", 9.5, saved=2.0)
    lab.exited("a", 0)
    assert lab.state("a") is JobState.SUCCEEDED
    assert lab.reason("a") == "ended early at epoch 9.5 of 10"


@pytest.mark.parametrize("code", [1, 137])
def test_a_job_that_fails_says_what_it_lost(code: int) -> None:
    lab = running(retries=0)
    lab.progress("a", 2.5, 4.0, saved=1.0)
    lab.exited("a", code)
    assert lab.reason("a") == f"exit code {code}; 1.5 epochs (6 s) lost"


@pytest.mark.parametrize("saved", [math.nan, math.inf, -1.0, 1.0, 5.0])
def test_an_invalid_saved_count_is_ignored_alone(saved: float) -> None:
    lab = running()
    lab.progress("a", 3.0, saved=2.0)
    lab.progress("a", 4.0, saved=saved)
    assert (lab.job("a").epochs_done, lab.job("a").epochs_saved) == (4.0, 2.0)


def test_unsaved_progress_does_not_count_as_progress() -> None:
    """Each attempt comes further than the last one, and saves nothing."""
    lab = running(retries=100)
    for done in (1.0, 2.0, 3.0):
        lab.progress("a", done, saved=0.0)
        lab.exited("a", 139)
        if done < 3.0:
            assert lab.state("a") is JobState.QUEUED
            again(lab)
    assert lab.state("a") is JobState.FAILED
    assert "3 attempts in a row made no progress" in lab.reason("a")


def test_the_next_attempt_may_begin_before_what_was_saved() -> None:
    """The newest checkpoint was damaged."""
    lab = running()
    lab.progress("a", 5.0, 10.0, saved=5.0)
    lab.exited("a", 137)
    again(lab)
    lab.progress("a", 3.0, saved=3.0)
    found = lab.job("a")
    assert (found.epochs_done, found.epochs_saved, found.lost_s) == (3.0, 3.0, 20.0)
    lab.progress("a", 2.0)
    assert lab.job("a").epochs_done == 3.0


def test_the_programs_total_overrides_the_users() -> None:
    lab = running(epochs=90.0)
    lab.progress("a", 10.0, epochs_total=30.0)
    assert (lab.job("a").epochs, lab.job("a").spec.epochs) == (30.0, 90.0)
    lab.progress("a", 31.0)
    assert lab.job("a").epochs_done == 10.0
    lab.exited("a", 0)
    assert lab.reason("a") == "ended early at epoch 10 of 30"


def test_a_job_of_unknown_length_learns_it_from_the_program() -> None:
    lab = running(epochs=1.0)
    lab.progress("a", 2.0)
    assert lab.job("a").epochs_done == 0.0
    lab.progress("a", 2.0, epochs_total=8.0)
    lab.hold("a")
    lab.progress("a", 8.0)
    lab.exited("a", 75)
    assert lab.state("a") is JobState.SUCCEEDED


@pytest.mark.parametrize("total", [math.nan, -math.inf, 0.0, -3.0, 3.9])
def test_a_report_beyond_its_own_total_is_ignored(total: float) -> None:
    lab = running()
    lab.progress("a", 4.0, epochs_total=total)
    assert (lab.job("a").epochs, lab.job("a").epochs_done) == (10.0, 0.0)


def test_every_total_that_the_parser_accepts_is_used() -> None:
    lab = running()
    lab.progress("a", 4.0, epochs_total=MOST_EPOCHS)
    assert lab.job("a").epochs == MOST_EPOCHS


def test_a_job_that_counts_epochs_without_an_end_is_never_complete_and_never_early() -> None:
    lab = running(epochs=1.0, estimate=Estimate(3600.0))
    lab.progress("a", 3.0, 100.0, epochs_total=math.inf)
    assert (finish(lab.job("a"), lab.now), lab.job("a").epochs_done) == (None, 3.0)
    lab.hold("a")
    lab.exited("a", 75)
    assert lab.state("a") is JobState.HELD
    lab.release("a")
    lab.round()
    lab.started("a")
    lab.exited("a", 0)
    assert (lab.state("a"), lab.reason("a")) == (JobState.SUCCEEDED, "")


def test_an_estimate_survives_an_unknown_number_of_epochs() -> None:
    lab = running(epochs=1.0, estimate=Estimate(3600.0))
    lab.progress("a", 1.0, epochs_total=math.inf)
    lab.progress("a", 1.0, epochs_total=60.0)
    assert lab.job("a").speed.epoch_s(1) == pytest.approx(60)


def test_an_estimate_of_the_whole_job_holds_for_more_epochs() -> None:
    lab = running(epochs=1.0, estimate=Estimate(3600.0))
    assert lab.job("a").speed.epoch_s(1) == 3600
    lab.progress("a", 0.1, epochs_total=60.0)
    assert lab.job("a").speed.epoch_s(1) == pytest.approx(60)


def test_an_estimate_is_corrected_by_the_first_measurement() -> None:
    """Ten hours on four workers, said the user; an epoch on two takes 100 s."""
    lab = Lab(cluster("1x2"), policy="elastic-fifo")
    lab.run(job("a", gpus="2..4", epochs=10.0, estimate=Estimate(36000.0, workers=4)))
    assert lab.job("a").speed.epoch_s(4) == pytest.approx(3600)
    lab.progress("a", 1.0, 100.0)
    assert lab.job("a").speed.epoch_s(2) == pytest.approx(100)
    assert 50 <= lab.job("a").speed.epoch_s(4) < 100


def test_an_epoch_measured_in_the_middle_of_the_next_and_the_memory_seen_count() -> None:
    lab = running()
    lab.progress("a", 2.3, 50.0, memory_bytes=5)
    lab.progress("a", 2.6, memory_bytes=3)
    assert lab.job("a").speed.epoch_s(1) == 50
    assert lab.job("a").memory_bytes_seen == 5


def test_a_report_while_stopping_saves_what_it_says() -> None:
    """Asked in the middle of an epoch, it stops there with a checkpoint."""
    lab = running()
    lab.progress("a", 2.0, 10.0, saved=2.0, hears=True)
    lab.hold("a")
    lab.progress("a", 2.5, saved=2.5)
    lab.exited("a", 75)
    assert lab.reason("a") == "held by owner"
    assert lab.job("a").epochs_done == 2.5


@pytest.mark.parametrize(("told_s", "cost_s"), [(20.0, 20.0), (1e6, 30.0), (0.0, 5.0)])
def test_a_start_takes_until_the_first_step_and_no_longer_than_the_job_is_there(
    told_s: float, cost_s: float
) -> None:
    lab = Lab(cluster("1x4"))
    lab.submit(job("a", epochs=10.0))
    lab.round()
    lab.wait(5)
    lab.started("a")
    lab.wait(30)
    for _ in range(2):
        lab.tell(ProgressReported(A, 1, 1.0, start_s=told_s))
    lab.tell(ProgressReported(A, 1, 2.0))
    assert lab.job("a").start_s == cost_s
