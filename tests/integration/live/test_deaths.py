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


def test_one_after_the_other_until_one_is_left(start_job: Start) -> None:
    job = running(start_job, 4)
    for number in (0, 3, 1):
        job.coordinator.kill(number)
        job.coordinator.wait_for_ends(number)
        job.coordinator.wait_for_generation()
        job.coordinator.wait_for_steps(2)
    finish(job, 2)
    check(job)


def test_two_at_once(start_job: Start) -> None:
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


@pytest.mark.parametrize("number", [0, 1, 2], ids=["the first", "another", "the newcomer"])
def test_during_a_switch(start_job: Start, number: int) -> None:
    job = running(start_job, 2)
    job.coordinator.want(0, 1, 2)
    job.coordinator.wait_for_switch()
    job.coordinator.kill(number)
    job.coordinator.wait_for_ends(number)
    job.coordinator.wait_for_generation()
    finish(job, *({0, 1, 2} - {number}))
    check(job)


def test_a_newcomer_before_it_is_ready(start_job: Start) -> None:
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
def test_a_newcomer_when_the_others_wait_for_it_to_connect(
    start_job: Start, number: int, code: int
) -> None:
    """They hear that it is gone, long before they would give up by themselves."""
    job = running(start_job, 2, opens_for_s=600.0)
    job.own_options[2] = {"goes_at_opening": number}
    job.coordinator.want(0, 1, 2)
    assert job.coordinator.wait_for_ends(2) == [code]
    job.coordinator.wait_for_generation()
    finish(job, 0, 1)
    check(job)


def test_one_that_hangs_is_killed_by_who_misses_it(start_job: Start) -> None:
    job = running(start_job, 3)
    job.coordinator.kill(1, by=signal.SIGSTOP)
    job.coordinator.wait_for_silence(1, heartbeat_s=3.0)
    job.coordinator.kill(1)
    job.coordinator.wait_for_ends(1)
    job.coordinator.wait_for_generation()
    finish(job, 0, 2)
    check(job)


def test_one_that_hangs_and_comes_back_leaves(start_job: Start) -> None:
    """Nobody killed it; the others went on without it, by an order that says it is gone."""
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


def test_who_finds_nobody_comes_again_to_where_the_others_wait(start_job: Start) -> None:
    job = start_job(epochs=EPOCHS)
    job.own_options[1] = {"connects_late": True}
    job.coordinator.want(0, 1, 2)
    job.coordinator.wait_for_generation()
    assert "cannot connect to" in job.log(1)
    finish(job, 0, 1, 2)
    check(job)


def test_a_connection_breaks_for_one_when_the_other_has_ended_the_epoch(start_job: Start) -> None:
    job = start_job(epochs=EPOCHS)
    job.own_options[1] = {"breaks_ending": True}
    job.coordinator.want(0, 1)
    finish(job, 0, 1)
    assert "was aborted" in job.log(0)
    check(job)
    assert len({note["rate"] for note in job.notes("ended")}) == 1


def test_a_death_between_two_epochs_is_logged(start_job: Start) -> None:
    """No step is undone then. The log says why training waits all the same."""
    job = start_job(epochs=EPOCHS)
    job.own_options[0] = {"dies_ending": True}
    job.coordinator.want(0, 1, 2)
    assert job.coordinator.wait_for_ends(0) == [-signal.SIGKILL]
    finish(job, 1, 2)
    for number in (1, 2):
        assert "a worker is gone after step 9" in job.log(number)
        assert "was aborted" not in job.log(number)
    check(job)


def test_an_error_of_the_script_is_the_scripts_own(start_job: Start) -> None:
    """It is not taken for a broken connection: the worker fails with it, the others go on."""
    job = start_job(epochs=EPOCHS)
    job.own_options[1] = {"fails_at": 5}
    job.coordinator.want(0, 1)
    assert job.coordinator.wait_for_ends(1) == [1]
    assert "the script's own mistake" in job.log(1)
    job.coordinator.wait_for_generation()
    finish(job, 0)
    check(job)


def test_what_the_broken_step_changed_is_put_back(start_job: Start) -> None:
    """Layers count each step once, and random numbers are drawn as if it had never begun."""
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


def test_children_that_load_data_do_not_keep_the_dead_alive(start_job: Start) -> None:
    job = running(start_job, 2, loader={"num_workers": 1})
    job.coordinator.kill(0)
    job.coordinator.wait_for_ends(0)
    job.coordinator.wait_for_generation()
    job.coordinator.wait_for_steps(3)
    job.coordinator.ask_to_stop("enough")
    assert job.coordinator.wait_for_ends(1) == [75]
