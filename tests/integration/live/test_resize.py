"""Workers come and go by plan, and the training is the one it would have been without."""

from collections.abc import Callable

from tests.integration.live.house import Job


def test_first(start_job: Callable[..., Job]) -> None:
    job = start_job(epochs=3, step_s=0.02)
    job.coordinator.want(0)
    job.coordinator.wait_for_generation()
    job.coordinator.want(0, 1)
    job.coordinator.wait_for_generation()
    assert job.coordinator.wait_for_ends(0, 1) == [0, 0]
    assert 0
