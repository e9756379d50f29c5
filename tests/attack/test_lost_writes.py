"""A truncated write-ahead log: no job vanishes without a word."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.daemon_process import DaemonProcess, temporary_daemon, wait_until


@pytest.fixture
def daemon() -> Generator[DaemonProcess]:
    with temporary_daemon(gpus="3x16GiB") as daemon:
        daemon.up()
        yield daemon


def truncate_log(daemon: DaemonProcess) -> None:
    """The main file of this young store holds no job yet: all of them are in the log."""
    os.truncate(daemon.state / "rota.db-wal", 0)


def exit_file(daemon: DaemonProcess, job: str) -> Path:
    return daemon.folders.jobs / job / "1" / "0" / "exit.json"


def test_jobs_that_the_store_has_lost_are_adopted(daemon: DaemonProcess) -> None:
    runs = [daemon.submit("say start; await go; say end", gpus="1") for _ in range(2)]
    ends = daemon.submit("say start; await end; exit 3", gpus="1")
    for job in (*runs, ends):
        daemon.says(job, "start")
        daemon.reaches(job, "running")
    daemon.kill()
    daemon.allow("end")
    wait_until(exit_file(daemon, ends).exists, "the end of a job without a daemon")
    truncate_log(daemon)
    daemon.up()
    for job in runs:
        daemon.reaches(job, "running", attempt=1)
    assert daemon.ends(ends).state == "failed"
    warnings = daemon.client.status().warnings
    assert all(any(job in each for each in warnings) for job in (*runs, ends))
    assert {each.cause for each in daemon.client.story(runs[0])} >= {"JobAdopted"}
    daemon.allow("go")
    for job in runs:
        assert daemon.ends(job).state == "succeeded"
    said = [each.words for job in runs for each in daemon.heard(job)]
    assert said == ["start", "end"] * 2, "no job ran twice"


def test_a_stop_that_the_store_has_lost_holds_the_job(daemon: DaemonProcess) -> None:
    job = daemon.submit("trap 'say term; exit 0' TERM; say start; await never", retries=5)
    daemon.says(job, "start")
    daemon.reaches(job, "running")
    daemon.client.cancel(job)
    assert daemon.ends(job).state == "cancelled"
    daemon.kill()
    truncate_log(daemon)
    daemon.up()
    daemon.reaches(job, "held")
    assert [each.words for each in daemon.heard(job)] == ["start", "term"]


def test_records_of_others_are_not_believed(daemon: DaemonProcess) -> None:
    job = daemon.submit("say start; await never")
    daemon.says(job, "start")
    daemon.reaches(job, "running")
    daemon.kill()
    truncate_log(daemon)
    (daemon.folders.jobs / job / "1" / "job.json").chmod(0o666)
    daemon.up()
    wait_until(exit_file(daemon, job).exists, "the stop of an unknown worker")
    [warning] = daemon.client.status().warnings
    assert "no usable record" in warning
