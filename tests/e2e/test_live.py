"""Live trainings under a real daemon: resizes and killed workers."""

import os
import signal
import sys
from collections.abc import Generator

import pytest

from tests.support.daemon_process import DaemonProcess, temporary_daemon, wait_until
from tests.support.live_job import LiveJob
from tests.tidy.tree import ROOT

SETTINGS = {"ROTA_MIN_RUNTIME": "0s", "ROTA_HEARTBEAT": "5s", "ROTA_RESTART_COST": "0s"}
"""Settings of a daemon that resizes jobs at once."""


@pytest.fixture(scope="module")
def shared() -> Generator[DaemonProcess]:
    with temporary_daemon(settings=SETTINGS) as daemon:
        daemon.up()
        yield daemon


def occupy(daemon: DaemonProcess, n_gpus: int, name: str) -> str:
    """A job of another user that ends with `daemon.allow(name)`."""
    job = daemon.submit(f"say start; await {name}", gpus=str(n_gpus))
    daemon.says(job, "start")
    return job


def kill(job: LiveJob, *workers: int, by: signal.Signals = signal.SIGKILL) -> None:
    for worker in workers:
        os.kill(job.came()[worker].pid, by)


def test_live_job_is_resized_by_other_jobs_and_by_its_owner(
    daemon: DaemonProcess,
) -> None:
    occupy(daemon, 3, "first")
    job = LiveJob(daemon)
    assert job.trains_with(1) == [0]
    daemon.allow("first")
    assert job.trains_with(4) == [0, 1, 2, 3]
    occupy(daemon, 2, "second")
    assert job.trains_with(2) == [0, 1]
    daemon.allow("second")
    assert job.trains_with(4) == [0, 1, 4, 5]
    [attempt] = daemon.client.show(job.id).attempts
    began_s = [each.started_s or 0.0 for each in attempt.workers]
    assert began_s[0] == attempt.started_s < began_s[3] < began_s[5]
    resized = daemon.rota("resize", job.id, "2")
    assert (resized.returncode, resized.stderr) == (0, "")
    assert job.trains_with(2) == [0, 1]
    refused = daemon.rota("resize", job.id, "5")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "runs on 1 to 4 GPUs, not 5" in refused.stderr
    job.finishes()
    assert job.attempt() == 1


def test_dead_and_frozen_workers_are_replaced(daemon: DaemonProcess) -> None:
    job = LiveJob(daemon, gpus="1..3")
    assert job.trains_with(3) == [0, 1, 2]
    kill(job, 2)
    assert job.trains_with(3, without=[2]) == [0, 1, 3]
    kill(job, 0)
    assert 0 not in job.trains_with(3, without=[0])
    kill(job, 1, by=signal.SIGSTOP)
    assert 1 not in job.trains_with(3, without=[1])
    assert "no report for 5 s while the other workers wait" in job.reasons()
    job.finishes()
    assert job.attempt() == 1


def test_live_job_survives_deaths_of_a_new_worker_and_of_the_daemon(daemon: DaemonProcess) -> None:
    occupy(daemon, 2, "first")
    job = LiveJob(daemon, gpus="1..3")
    assert job.trains_with(2) == [0, 1]
    daemon.allow("first")
    wait_until(lambda: 2 in job.came(), "a newcomer")
    kill(job, 2)
    wait_until(lambda: 3 in job.came(), "another in its place")
    n_given = job.n_given()
    wait_until(lambda: job.n_given() > n_given, "the switch")
    daemon.kill()
    daemon.up()
    assert job.trains_with(3, without=[2]) == [0, 1, 3]
    job.finishes()
    assert job.attempt() == 1
    joined = [(each.worker, each.generation) for each in job.joined()]
    assert len(joined) == len(set(joined)), "a worker joined twice"


def test_live_job_with_too_few_workers_saves_and_resumes_later(daemon: DaemonProcess) -> None:
    job = LiveJob(daemon, gpus="2..3", retries=1)
    assert job.trains_with(3) == [0, 1, 2]
    wait_until(lambda: daemon.client.show(job.id).job.epochs_done > 0, "a report")
    kill(job, 0, 1)
    daemon.reaches(job.id, "starting", attempt=2)
    job.trains_with(3, attempt=2)
    before = max(each.step for each in job.joined())
    assert min(each.step for each in job.joined(attempt=2)) > before
    job.finishes()


def test_new_worker_with_other_code_may_not_join(daemon: DaemonProcess) -> None:
    occupy(daemon, 3, "first")
    job = LiveJob(daemon)
    job.trains_with(1)
    (daemon.place / "samples").write_text("63")
    daemon.allow("first")
    wait_until(lambda: any("may not join" in each for each in job.reasons()), "the refusal")
    assert any("dataset of 63" in each for each in job.reasons())
    job.finishes()
    assert job.attempt() == 1


def test_live_example_succeeds(daemon: DaemonProcess) -> None:
    done = daemon.rota(
        *("submit", "--mode", "live", "--gpus", "1..2", "--workdir", str(ROOT)),
        *("--env", f"PYTHONPATH={ROOT / 'trainer' / 'src'}", "--"),
        *(sys.executable, "examples/live_ddp.py", "--epochs", "3"),
    )
    assert done.returncode == 0, done.stderr
    job = done.stdout.split()[0]
    assert daemon.ends(job).state == "succeeded", daemon.output(job)
    assert b"epoch 3 is done, by 2 workers" in daemon.output(job)
