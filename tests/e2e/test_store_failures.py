"""The store cannot be written for a while: submits are refused, what runs goes on, nothing that
was acknowledged is lost, and the daemon goes on by itself."""

import os
import sqlite3
import subprocess
from pathlib import Path

import pytest

from rota.errors import UnavailableError
from tests.e2e.disks import can_mount, fill, on_a_disk
from tests.e2e.house import House, a_house, wait_until


class Story:
    """The same for every kind of failure: one job runs, one waits, and then it happens."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.running = house.submit("say start; await go; say end")
        self.waiting = house.submit("say start; await second; say end")
        self.held: list[str] = []
        house.says(self.running, "start")

    def is_refused(self, *, because: str) -> None:
        """What is submitted meanwhile: accepted while it can be, then refused in words."""

        def refusal() -> str:
            try:
                self.held.append(self.house.submit("say start", hold=True))
            except UnavailableError as error:
                return str(error)
            return ""

        assert because in wait_until(refusal, "a submit to be refused")
        assert because in self.house.client.status().trouble
        assert self.house.readiness() == 503

    def goes_on(self) -> None:
        """The running job ends while nobody can write that down."""
        house = self.house
        house.allow("go")
        house.says(self.running, "end")
        wait_until(lambda: not house.processes(self.running), "the job to end by itself")
        assert house.heard(self.waiting) == []
        assert house.readiness() == 503

    def ends_well(self) -> None:
        house = self.house
        house.says(self.waiting, "start")
        assert house.ends(self.running).state == "succeeded"
        assert house.readiness() == 200
        house.allow("second")
        assert house.ends(self.waiting).state == "succeeded"
        later = house.submit("say start")
        assert house.ends(later).state == "succeeded"
        known = {job.id for job in house.client.jobs(limit=1000).jobs}
        assert known == {self.running, self.waiting, later, *self.held}
        assert {house.state_of(job) for job in self.held} <= {"held"}
        assert house.client.status().gpus_held == 0
        checked = house.rota("store", "check")
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_full_disk(tmp_path: Path) -> None:
    if not can_mount(tmp_path):
        pytest.skip("needs the right to mount")
    with a_house(gpus="1x16GiB", runner=on_a_disk("", "4m")) as house:
        house.launch()
        house.look_through_its_eyes()
        house.ready()
        story = Story(house)
        fill(house.state / "filler")
        fill(house.state / "daemon.log")
        story.is_refused(because="no space left")
        fill(house.state / "filler")
        story.goes_on()
        (house.state / "filler").unlink()
        story.ends_well()


def test_a_lock_of_another_program(own_house: House) -> None:
    own_house.up()
    story = Story(own_house)
    other = sqlite3.connect(own_house.state / "rota.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    story.is_refused(because="another program holds a lock")
    story.goes_on()
    other.execute("ROLLBACK")
    other.close()
    story.ends_well()


def test_a_file_that_may_not_be_written_for_a_while(own_house: House) -> None:
    """Whoever has a file open may write it whatever its mode is; unless it is immutable."""
    own_house.up()
    story = Story(own_house)
    paths = [str(own_house.state / name) for name in ("rota.db", "rota.db-wal")]
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
