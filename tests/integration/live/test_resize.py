"""Resizes do not change the result of the training."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.live.elastic_job import EPOCHS, SAMPLES, ElasticJob, alone, check, finish
from tests.integration.live.step_history import final_steps, losses

Start = Callable[..., ElasticJob]


def go_through(job: ElasticJob, *sizes: int) -> None:
    """Resize step by step. A smaller size removes the last worker."""
    for size in sizes:
        job.coordinator.want(*range(size))
        job.coordinator.wait_for_generation()
        job.coordinator.wait_for_steps(3)


def test_any_sequence_of_sizes_trains_like_one_worker(start_job: Start, tmp_path: Path) -> None:
    job = start_job(epochs=EPOCHS)
    go_through(job, 1, 2, 4, 3, 1)
    finish(job, 0, 1, 2, 3)

    steps = job.notes("step")
    assert {note["size"] for note in steps} == {1, 2, 3, 4}
    check(job)
    expected = losses([each for each in alone(tmp_path / "a", epochs=EPOCHS) if "step" in each])
    assert losses(steps) == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_statistics_of_layers_are_the_same_in_all_workers(start_job: Start) -> None:
    job = start_job(epochs=EPOCHS, model="normed")
    go_through(job, 2, 3)
    finish(job, 0, 1, 2)
    done = job.notes("done")
    assert len({note["worker"] for note in done}) == 3
    check(job)


def test_new_worker_that_is_no_longer_wanted_leaves(start_job: Start) -> None:
    job = start_job(epochs=EPOCHS)
    job.coordinator.want(0, 1, 2)
    job.coordinator.want(0, 1)
    assert job.coordinator.wait_for_ends(2) == [0]
    finish(job, 0, 1)
    check(job)


def test_first_worker_can_be_replaced_by_a_new_worker(start_job: Start) -> None:
    """A move: one worker joins and one leaves in the same switch."""
    job = start_job(epochs=EPOCHS)
    go_through(job, 2)
    job.coordinator.want(1, 2)
    job.coordinator.wait_for_generation()
    assert job.coordinator.wait_for_ends(0) == [0]
    job.coordinator.want(3)
    job.coordinator.wait_for_generation()
    finish(job, 1, 2, 3)
    check(job)


@pytest.mark.parametrize(("scaling", "factor"), [("linear", 3.0), ("sqrt", 3.0**0.5)])
def test_batch_size_and_learning_rate_follow_the_size(
    start_job: Start, scaling: str, factor: float
) -> None:
    job = start_job(epochs=EPOCHS, scaling=scaling, batch=8)
    go_through(job, 1, 3, 1)
    finish(job, 0, 1, 2)
    rates = {
        (note["epoch"], note["size"]): note["rate"]
        for same in final_steps(job.notes("step")).values()
        for note in same
    }
    assert {size for _, size in rates} == {1, 3}
    for (epoch, size), rate in rates.items():
        expected = 0.01 * 0.7**epoch * (factor if size == 3 else 1.0)
        assert rate == pytest.approx(expected)
    for epoch in range(EPOCHS):
        used = [
            index
            for note in job.notes("step")
            if note["epoch"] == epoch
            for index in note["samples"]
        ]
        assert sorted(used) == list(range(SAMPLES))
