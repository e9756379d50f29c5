"""GPU time is charged up to the end of the last worker, whenever the daemon noticed the end."""

import pytest

from rota.core.lifecycle.states import JobState
from rota.core.model.events import JobCancelled, WorkersExited, WorkersLost
from rota.core.model.job import JobId, ServiceTime
from tests.support.builders import Lab, cluster, job

A = JobId("a")


@pytest.fixture
def lab() -> Lab:
    """A job that runs on two GPUs since 4 s, in a daemon that was down for the next 41 s."""
    lab = Lab(cluster("1x2"))
    lab.run(job("a", gpus=2, retries=1))
    lab.now = 45.0
    return lab


def service(lab: Lab) -> ServiceTime:
    found = lab.kernel.job(A) or lab.store.job(A)
    assert found is not None
    return found.service


def exited(code: int, *, worker: int, ago_s: float) -> WorkersExited:
    return WorkersExited(A, 1, {worker: code}, ago_s=ago_s)


def test_a_success_that_is_noticed_late_is_charged_to_its_end(lab: Lab) -> None:
    for worker in (0, 1):
        lab.tell(exited(0, worker=worker, ago_s=41.0))
    charged = service(lab)
    assert (charged.running_s, charged.gpu_s, charged.as_of_s) == (4.0, 8.0, 45.0)


@pytest.mark.parametrize("agos_s", [(41.0, 35.0), (35.0, 41.0)])
def test_the_last_worker_counts(lab: Lab, agos_s: tuple[float, float]) -> None:
    for worker, ago_s in enumerate(agos_s):
        lab.tell(exited(0, worker=worker, ago_s=ago_s))
    assert service(lab).gpu_s == 20.0


def test_a_retry_waits_from_now_on(lab: Lab) -> None:
    lab.tell(exited(1, worker=0, ago_s=41.0))
    assert lab.state("a") is JobState.STOPPING
    lab.tell(exited(143, worker=1, ago_s=41.0))
    assert lab.state("a") is JobState.QUEUED
    charged = service(lab)
    assert (charged.gpu_s, charged.waiting_s, charged.as_of_s) == (8.0, 0.0, 45.0)


def test_a_worker_that_ran_on_is_charged(lab: Lab) -> None:
    lab.tell(exited(1, worker=0, ago_s=41.0))
    lab.now = 47.0
    lab.tell(exited(143, worker=1, ago_s=0.0))
    assert service(lab).gpu_s == 94.0


def test_a_loss_is_charged_to_its_time(lab: Lab) -> None:
    lab.tell(WorkersLost(A, 1, frozenset({0, 1}), ago_s=41.0))
    assert service(lab).gpu_s == 8.0


def test_an_end_from_the_future_or_before_the_start_is_not_believed(lab: Lab) -> None:
    for worker, ago_s in enumerate((-100.0, 1000.0)):
        lab.tell(exited(0, worker=worker, ago_s=ago_s))
    assert service(lab).gpu_s == 90.0


def test_the_next_attempt_knows_no_end(lab: Lab) -> None:
    lab.tell(WorkersLost(A, 1, frozenset({0, 1}), ago_s=41.0))
    lab.round()
    lab.started("a")
    assert lab.state("a") is JobState.RUNNING
    lab.now = 50.0
    lab.tell(JobCancelled(A, "ada"))
    lab.tell(WorkersExited(A, 2, {0: 143, 1: 143}))
    assert service(lab).gpu_s == 8.0 + 10.0
