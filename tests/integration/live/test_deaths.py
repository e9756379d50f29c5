"""Workers fail at any moment, and the others continue from the last step."""

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.live.elastic_job import EPOCHS, ElasticJob, check, finish

Start = Callable[..., ElasticJob]


def running(start_job: Start, n_workers: int, **options: Any) -> ElasticJob:
    job = start_job(epochs=EPOCHS, **options)
    job.coordinator.want(*range(n_workers))
    job.coordinator.wait_for_generation()
    job.coordinator.wait_for_steps(2)
    return job


def test_training_survives_deaths_until_one_worker_is_left(start_job: Start) -> None:
    job = running(start_job, 4)
    for number in (0, 3, 1):
        job.coordinator.kill(number)
        job.coordinator.wait_for_ends(number)
        job.coordinator.wait_for_generation()
        job.coordinator.wait_for_steps(2)
    finish(job, 2)
    check(job)


def test_training_survives_two_deaths_at_once(start_job: Start) -> None:
    job = running(start_job, 4)
    job.coordinator.kill(0, 2)
    job.coordinator.wait_for_ends(0, 2)
    job.coordinator.wait_for_generation()
    finish(job, 1, 3)
    check(job)


def test_a_dead_worker_is_replaced(start_job: Start) -> None:
    job = running(start_job, 2)
    job.coordinator.kill(1)
    job.coordinator.wait_for_ends(1)
    job.coordinator.want(0, 2)
    job.coordinator.wait_for_generation()
    finish(job, 0, 2)
    check(job)
    assert {note["worker"] for note in job.notes("ended")} == {0, 2}


@pytest.mark.parametrize("number", [0, 1, 2], ids=["first", "another", "new"])
def test_training_survives_a_death_during_a_switch(start_job: Start, number: int) -> None:
    job = running(start_job, 2)
    job.coordinator.want(0, 1, 2)
    job.coordinator.wait_for_switch()
    job.coordinator.kill(number)
    job.coordinator.wait_for_ends(number)
    job.coordinator.wait_for_generation()
    finish(job, *({0, 1, 2} - {number}))
    check(job)


def test_training_survives_the_death_of_a_new_worker_before_it_is_ready(start_job: Start) -> None:
    job = running(start_job, 2)
    job.coordinator.want(0, 1, 2)
    job.coordinator.wait_until(lambda: 2 in job.coordinator.processes)
    job.coordinator.kill(2)
    job.coordinator.wait_for_ends(2)
    job.coordinator.wait_for_generation()
    finish(job, 0, 1)
    check(job)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 75)]
)
def test_training_survives_the_death_of_a_new_worker_that_others_wait_for(
    start_job: Start, number: int, code: int
) -> None:
    """The others learn of the death long before their own timeout."""
    job = running(start_job, 2, opens_for_s=600.0)
    job.own_options[2] = {"goes_at_opening": number}
    job.coordinator.want(0, 1, 2)
    assert job.coordinator.wait_for_ends(2) == [code]
    job.coordinator.wait_for_generation()
    finish(job, 0, 1)
    check(job)


def test_hanging_worker_is_killed_by_the_coordinator(start_job: Start) -> None:
    job = running(start_job, 3)
    job.coordinator.kill(1, by=signal.SIGSTOP)
    job.coordinator.wait_for_silence(1, heartbeat_s=3.0)
    job.coordinator.kill(1)
    job.coordinator.wait_for_ends(1)
    job.coordinator.wait_for_generation()
    finish(job, 0, 2)
    check(job)


def test_hanging_worker_that_continues_leaves(start_job: Start) -> None:
    """The worker was not killed; the others got the order to continue without it."""
    job = running(start_job, 3)
    job.coordinator.kill(1, by=signal.SIGSTOP)
    job.coordinator.wait_for_silence(1, heartbeat_s=3.0)
    job.coordinator.give_up(1)
    job.coordinator.wait_for_generation()
    job.coordinator.wait_for_steps(2)
    job.coordinator.kill(1, by=signal.SIGCONT)
    assert job.coordinator.wait_for_ends(1) == [0]
    finish(job, 0, 2)
    check(job)


def test_worker_whose_connection_fails_connects_again(start_job: Start) -> None:
    job = start_job(epochs=EPOCHS)
    job.own_options[1] = {"connects_late": True}
    job.coordinator.want(0, 1, 2)
    job.coordinator.wait_for_generation()
    assert "cannot connect to" in job.log(1)
    finish(job, 0, 1, 2)
    check(job)


def test_broken_connection_at_the_end_of_an_epoch_loses_no_step(start_job: Start) -> None:
    job = start_job(epochs=EPOCHS)
    job.own_options[1] = {"breaks_ending": True}
    job.coordinator.want(0, 1)
    finish(job, 0, 1)
    assert "was aborted" in job.log(0)
    check(job)
    assert len({note["rate"] for note in job.notes("ended")}) == 1


def test_a_death_between_two_epochs_is_logged(start_job: Start) -> None:
    """No step is undone, and the log still says why training waits."""
    job = start_job(epochs=EPOCHS)
    job.own_options[0] = {"dies_ending": True}
    job.coordinator.want(0, 1, 2)
    assert job.coordinator.wait_for_ends(0) == [-signal.SIGKILL]
    finish(job, 1, 2)
    for number in (1, 2):
        assert "a worker is gone after step 9" in job.log(number)
        assert "was aborted" not in job.log(number)
    check(job)


def test_error_of_the_script_fails_only_its_worker(start_job: Start) -> None:
    """The error is not treated as a broken connection: the worker fails and the others continue."""
    job = start_job(epochs=EPOCHS)
    job.own_options[1] = {"fails_at": 5}
    job.coordinator.want(0, 1)
    assert job.coordinator.wait_for_ends(1) == [1]
    assert "the script's own mistake" in job.log(1)
    job.coordinator.wait_for_generation()
    finish(job, 0)
    check(job)


def test_changes_of_a_broken_step_are_undone(start_job: Start) -> None:
    """Layers count each step once, and random states are those before the broken step."""
    torch = pytest.importorskip("torch")
    job = running(start_job, 3, model="normed")
    for number in (2, 1):
        job.coordinator.kill(number)
        job.coordinator.wait_for_ends(number)
        job.coordinator.wait_for_generation()
    finish(job, 0)
    check(job)
    assert [note["n_tracked"] for note in job.notes("ended")] == [job.last_step()]
    draws = [note["draw"] for note in job.notes("step") if note["worker"] == 0]
    assert len(draws) == len(set(draws)) == job.last_step()
    torch.manual_seed(0)
    drawn = torch.rand(5000).tolist()
    begin = drawn.index(draws[0])
    assert draws == drawn[begin : begin + len(draws)]


def test_data_loader_processes_do_not_hide_a_death(start_job: Start) -> None:
    job = running(start_job, 2, loader={"num_workers": 1})
    job.coordinator.kill(0)
    job.coordinator.wait_for_ends(0)
    job.coordinator.wait_for_generation()
    job.coordinator.wait_for_steps(3)
    job.coordinator.ask_to_stop("enough")
    assert job.coordinator.wait_for_ends(1) == [75]
