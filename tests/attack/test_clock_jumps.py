"""Somebody sets the clock of the machine: jobs keep their time limits, and their ends are charged
as the supervisor recorded them."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.daemon_process import DaemonProcess, temporary_daemon, wait_until
from tests.support.wall_clock import HOUR_S, WallClock, has_compiler

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="needs gcc")
FOREVER = "say start; await never"


@pytest.fixture
def wall(tmp_path: Path) -> WallClock:
    """The wall clock of the daemon."""
    return WallClock(tmp_path)


@pytest.fixture
def daemon(wall: WallClock) -> Generator[DaemonProcess]:
    with temporary_daemon(settings=wall.environment) as daemon:
        daemon.up()
        yield daemon


@needs_compiler
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_clock_that_is_set_forward_ends_no_job(
    daemon: DaemonProcess, wall: WallClock, is_restarted: bool
) -> None:
    job = daemon.submit(FOREVER, time_limit="1h")
    daemon.says(job, "start")
    daemon.reaches(job, "running")
    if is_restarted:
        daemon.kill()
    wall.shift(2 * HOUR_S)
    if is_restarted:
        daemon.up()
    # Another job: the daemon has decided after the jump.
    other = daemon.submit("say start", time_limit="1h")
    assert daemon.ends(other).state == "succeeded"
    seen = daemon.client.show(job).job
    assert seen.state == "running"
    assert seen.running_s < 600
    assert daemon.ends(other).running_s < 600


@needs_compiler
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_clock_that_is_set_back_disables_no_limit(
    daemon: DaemonProcess, wall: WallClock, is_restarted: bool
) -> None:
    job = daemon.submit(FOREVER, time_limit="6s")
    daemon.says(job, "start")
    if is_restarted:
        daemon.kill()
    wall.shift(-HOUR_S)
    if is_restarted:
        daemon.up()
    ended = daemon.ends(job)
    assert ended.state == "failed"
    assert "time limit" in ended.reason


def pass_an_hour(daemon: DaemonProcess, record: Path) -> None:
    """While the daemon is down: an hour more since the last reading of its clock, and since the end
    of the job."""
    for file, name, by_s in (
        (daemon.state / "clock.json", "now_s", 3600.0),
        (record, "ended_boot_s", -3600.0),
    ):
        value = json.loads(file.read_text())
        value[name] += by_s
        file.write_text(json.dumps(value))


def test_a_job_that_ends_while_no_daemon_runs_is_charged_to_its_end() -> None:
    with temporary_daemon() as daemon:
        daemon.up()
        job = daemon.submit("say start; await go", gpus="1")
        daemon.says(job, "start")
        daemon.reaches(job, "running")
        daemon.kill()
        daemon.allow("go")
        record = daemon.folders.jobs / job / "1" / "0" / "exit.json"
        wait_until(record.exists, "the end of the job")
        pass_an_hour(daemon, record)
        daemon.up()
        assert daemon.ends(job).state == "succeeded"
        assert daemon.client.show(job).gpu_s < 600
