"""The daemon's clock while the wall clock jumps, the machine sleeps and the daemon restarts."""

from pathlib import Path

import pytest

from rota.daemon.runtime.clock import KEEP_S, MAX_RATE, DaemonClock

HOUR_S = 3600.0


class Machine:
    """A machine with a wall clock that can be set."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "clock.json"
        self.wall_s, self.boot_s, self.boot_id = 1_000_000.0, 500.0, "one"

    def start(self) -> DaemonClock:
        return DaemonClock(
            self.file,
            wall=lambda: self.wall_s,
            boot=lambda: self.boot_s,
            boot_id=lambda: self.boot_id,
        )

    def wait(self, seconds: float, clock: DaemonClock | None = None) -> None:
        """With a `clock`: the daemon runs meanwhile."""
        left_s = seconds
        while left_s > 0:
            step_s = min(left_s, KEEP_S)
            self.wall_s += step_s
            self.boot_s += step_s
            left_s -= step_s
            if clock is not None:
                clock.follow()

    def set_wall(self, by_s: float) -> None:
        self.wall_s += by_s

    def reboot(self) -> None:
        self.boot_id, self.boot_s = "two", 1.0


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_clock_that_nobody_sets_shows_wall_time(machine: Machine) -> None:
    clock = machine.start()
    machine.wait(10 * HOUR_S, clock)
    assert clock() == pytest.approx(machine.wall_s)


@pytest.mark.parametrize("by_s", [2 * HOUR_S, -1 * HOUR_S, 400 * 86400.0])
def test_a_jump_of_the_wall_clock_changes_no_duration(machine: Machine, by_s: float) -> None:
    clock = machine.start()
    before = clock()
    machine.set_wall(by_s)
    assert clock() == before
    machine.wait(HOUR_S, clock)
    assert clock() - before == pytest.approx(HOUR_S, rel=MAX_RATE)


def test_the_clock_follows_the_wall_clock_slowly(machine: Machine) -> None:
    clock = machine.start()
    machine.set_wall(36.0)
    machine.wait(HOUR_S, clock)
    assert machine.wall_s - clock() == pytest.approx(0.0, abs=1.0)
    machine.wait(HOUR_S, clock)
    assert clock() == pytest.approx(machine.wall_s, abs=1e-3)


def test_the_clock_never_goes_back(machine: Machine) -> None:
    clock = machine.start()
    machine.set_wall(-HOUR_S)
    seen = clock()
    for _ in range(200):
        machine.wait(KEEP_S / 2)
        assert clock() > seen
        seen = clock()
        machine.wait(KEEP_S / 2, clock)
        assert clock() > seen
        seen = clock()


def test_a_late_comparison_does_not_overshoot(machine: Machine) -> None:
    clock = machine.start()
    machine.set_wall(36.0)
    clock.follow()
    machine.wall_s += 10 * HOUR_S
    machine.boot_s += 10 * HOUR_S
    assert machine.wall_s - clock() == pytest.approx(36.0 - MAX_RATE * KEEP_S)


@pytest.mark.parametrize("by_s", [2 * HOUR_S, -1 * HOUR_S])
def test_a_restart_during_a_jump_changes_no_duration(machine: Machine, by_s: float) -> None:
    before = machine.start()()
    machine.wait(60.0)
    machine.set_wall(by_s)
    assert machine.start()() == pytest.approx(before + 60.0)


def test_a_jump_before_the_restart_is_not_forgotten(machine: Machine) -> None:
    clock = machine.start()
    machine.set_wall(2 * HOUR_S)
    machine.wait(HOUR_S, clock)
    expected = clock()
    assert machine.start()() == pytest.approx(expected, abs=0.1)


def test_another_boot_starts_from_the_wall_clock(machine: Machine) -> None:
    machine.start()
    machine.set_wall(-HOUR_S)
    machine.reboot()
    assert machine.start()() == machine.wall_s


def test_a_wrong_year_is_corrected_at_the_next_start(machine: Machine) -> None:
    machine.start()
    machine.set_wall(50 * 365 * 86400.0)
    assert machine.start()() == machine.wall_s


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"boot_id": "one", "boot_s": NaN, "now_s": 1.0}', "\x00" * 100]
)
def test_a_damaged_file_is_replaced(machine: Machine, text: str) -> None:
    machine.file.write_text(text)
    machine.start()
    machine.wait(5.0)
    machine.set_wall(-100.0)
    assert machine.start()() == pytest.approx(machine.wall_s + 100.0)


def test_a_clock_on_a_full_disk_runs(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "gone")
    assert machine.start()() == machine.wall_s
