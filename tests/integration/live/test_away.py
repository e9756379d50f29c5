"""Training continues without the daemon; decisions of the daemon wait up to the patience."""

from collections.abc import Callable

from tests.integration.live.elastic_job import EPOCHS, ElasticJob, check, finish

Start = Callable[..., ElasticJob]


def running(start_job: Start, **options: float) -> ElasticJob:
    job = start_job(epochs=EPOCHS, **options)
    job.coordinator.want(0, 1, 2)
    job.coordinator.wait_for_generation()
    return job


def test_training_continues_and_resizes_wait_while_the_daemon_is_away(start_job: Start) -> None:
    job = running(start_job)
    job.coordinator.go_away()
    job.wait_for_steps(20)
    job.coordinator.serve()
    job.coordinator.want(0, 2)
    job.coordinator.wait_for_generation()
    assert job.coordinator.wait_for_ends(1) == [0]
    finish(job, 0, 2)
    check(job)


def test_death_while_the_daemon_is_away_is_handled_after_its_return(start_job: Start) -> None:
    job = running(start_job)
    job.coordinator.go_away()
    job.coordinator.kill(0)
    job.coordinator.wait_for_ends(0)
    stands = job.last_step()
    job.wait_for_log(1, "a worker is gone")
    assert job.last_step() <= stands + 1
    job.coordinator.serve()
    job.coordinator.react_again()
    job.coordinator.wait_for_generation()
    finish(job, 1, 2)
    check(job)


def test_worker_that_waits_too_long_saves_and_stops(start_job: Start) -> None:
    job = running(start_job, patience_s=2.0)
    job.coordinator.go_away()
    job.coordinator.kill(1)
    assert job.coordinator.wait_for_ends(0, 2) == [75, 75]
    assert "the daemon sent no new generation" in job.log(0)
    job.coordinator.serve()
    job.coordinator.start_again(3, 4)
    job.coordinator.wait_for_generation()
    finish(job, 3, 4)
    check(job)
    assert min(note["step"] for note in job.notes("step") if note["worker"] >= 3) > 1
