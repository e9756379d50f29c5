"""The store cannot be written for a while: submits are refused, running jobs continue, no accepted
job is lost, and the daemon recovers by itself."""

import os
import sqlite3
import subprocess
from pathlib import Path

import pytest

from rota.errors import UnavailableError
from tests.support.daemon_process import DaemonProcess, temporary_daemon, wait_until
from tests.support.small_disks import can_mount, fill, on_a_disk


class Story:
    """The scenario of every kind of failure: one job runs and one is queued when it begins."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.daemon = daemon
        self.running = daemon.submit("say start; await go; say end")
        self.waiting = daemon.submit("say start; await second; say end")
        self.held: list[str] = []
        daemon.says(self.running, "start")

    def is_refused(self, *, because: str) -> None:
        """Submit jobs during the failure until one is refused with a reason."""

        def refusal() -> str:
            try:
                self.held.append(self.daemon.submit("say start", hold=True))
            except UnavailableError as error:
                return str(error)
            return ""

        assert because in wait_until(refusal, "a submit to be refused")
        assert because in self.daemon.client.status().trouble
        assert self.daemon.readiness() == 503

    def goes_on(self) -> None:
        """The running job ends while the store cannot be written."""
        daemon = self.daemon
        daemon.allow("go")
        daemon.says(self.running, "end")
        wait_until(lambda: not daemon.processes(self.running), "the job to end by itself")
        assert daemon.heard(self.waiting) == []
        assert daemon.readiness() == 503

    def ends_well(self) -> None:
        daemon = self.daemon
        daemon.says(self.waiting, "start")
        assert daemon.ends(self.running).state == "succeeded"
        assert daemon.readiness() == 200
        daemon.allow("second")
        assert daemon.ends(self.waiting).state == "succeeded"
        later = daemon.submit("say start")
        assert daemon.ends(later).state == "succeeded"
        known = {job.id for job in daemon.client.jobs(limit=1000).jobs}
        assert known == {self.running, self.waiting, later, *self.held}
        assert {daemon.state_of(job) for job in self.held} <= {"held"}
        assert daemon.client.status().gpus_held == 0
        checked = daemon.rota("store", "check")
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_daemon_recovers_from_a_full_disk(tmp_path: Path) -> None:
    if not can_mount(tmp_path):
        pytest.skip("needs the right to mount")
    with temporary_daemon(gpus="1x16GiB", runner=on_a_disk("", "4m")) as daemon:
        daemon.launch()
        daemon.enter_mount_namespace()
        daemon.ready()
        story = Story(daemon)
        fill(daemon.state / "filler")
        fill(daemon.state / "daemon.log")
        story.is_refused(because="no space left")
        fill(daemon.state / "filler")
        story.goes_on()
        (daemon.state / "filler").unlink()
        story.ends_well()


def test_daemon_recovers_from_a_lock_of_another_program(own_daemon: DaemonProcess) -> None:
    own_daemon.up()
    story = Story(own_daemon)
    other = sqlite3.connect(own_daemon.state / "rota.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    story.is_refused(because="another program has locked the file")
    story.goes_on()
    other.execute("ROLLBACK")
    other.close()
    story.ends_well()


def test_daemon_recovers_from_an_immutable_file(own_daemon: DaemonProcess) -> None:
    """An open file can be written whatever its mode is, unless the file is immutable."""
    own_daemon.up()
    story = Story(own_daemon)
    paths = [str(own_daemon.state / name) for name in ("rota.db", "rota.db-wal")]
    if os.geteuid() != 0 or not changes(paths, "+i"):
        pytest.skip("needs immutable files")
    try:
        story.is_refused(because="rota.db")
        story.goes_on()
    finally:
        changes(paths, "-i")
    story.ends_well()


def changes(paths: list[str], flag: str) -> bool:
    done = subprocess.run(["chattr", flag, *paths], capture_output=True, check=False)
    return done.returncode == 0
