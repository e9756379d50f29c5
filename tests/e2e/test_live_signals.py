"""SIGTERM to workers of a live training from outside of the daemon."""

import os
import random
import signal
import time

import pytest

from tests.e2e.test_live import shared
from tests.support.daemon_process import DaemonProcess, wait_until
from tests.support.live_job import LiveJob

__all__ = ["shared"]


def terminate(job: LiveJob, *workers: int) -> None:
    for worker in workers:
        os.kill(job.came()[worker].pid, signal.SIGTERM)


def goes_on_where_it_was(job: LiveJob) -> None:
    """Check that another attempt continues. At most the last step is repeated: possibly only a
    worker that has exited finished it."""
    job.daemon.reaches(job.id, "starting", attempt=2)
    done = max(step for _, step in job.did())
    job.trains_with(3, attempt=2)
    assert min(each.step for each in job.joined(attempt=2)) >= done
    job.finishes()


def test_worker_stopped_by_sigterm_is_replaced_or_the_job_waits(daemon: DaemonProcess) -> None:
    job = LiveJob(daemon, gpus="2..3", retries=0)
    assert job.trains_with(3) == [0, 1, 2]
    terminate(job, 0)
    assert job.trains_with(3, without=[0]) == [1, 2, 3]
    assert "continues without worker 0; exit code 75" in job.reasons()
    wait_until(lambda: daemon.client.show(job.id).job.epochs_done > 0, "a report")
    terminate(job, 1, 3)
    goes_on_where_it_was(job)


@pytest.mark.parametrize("longest_gap_s", [0.0, 1.0])
def test_workers_save_and_stop_after_sigterm_at_different_times(
    daemon: DaemonProcess, longest_gap_s: float
) -> None:
    job = LiveJob(daemon, gpus="1..3", retries=0)
    workers = job.trains_with(3)
    wait_until(lambda: daemon.client.show(job.id).job.epochs_done > 0, "a report")
    chance = random.Random(1)
    for worker in chance.sample(workers, len(workers)):
        terminate(job, worker)
        time.sleep(chance.random() * longest_gap_s)
    goes_on_where_it_was(job)
