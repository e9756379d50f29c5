"""Real agents of torchrun meet, grow, shrink and die, without a single restart to spend."""

from tests.integration.torchrun.conftest import Begin
from tests.integration.torchrun.scheduler import JOB, FakeScheduler, eventually


def test_grows_from_one_to_three_and_shrinks_to_two(begin: Begin) -> None:
    field = begin(0)
    scheduler = field.scheduler
    field.start(0, "--nnodes", "1:3")
    field.trains(0, 0)

    assert scheduler.members(0, 1, 2) == 1
    field.start(1, "--nnodes", "1:3")
    field.start(2, "--nnodes=1")
    field.trains(1, 0, 1, 2)
    eventually(lambda: scheduler.told() == [1], "the kernel hears of generation 1")
    eventually(lambda: is_measured(scheduler, generation=1, workers=3), "how long that took")

    assert scheduler.members(0, 2) == 2
    field.trains(2, 0, 2)
    # The scheduler knows of the leaver's end before it hears that the others stand without it.
    assert field.end(1) == 0
    assert "this worker was removed from the job" in field.log(1).read_text()
    assert scheduler.told() == [1]
    scheduler.exited(1, 0)
    eventually(lambda: scheduler.told() == [1, 2], "the kernel hears of generation 2")
    field.finish()


def is_measured(scheduler: FakeScheduler, *, generation: int, workers: int) -> bool:
    found = scheduler.rendezvous.restart(JOB)
    if found is None or found.generation != generation:
        return False
    assert found.workers == workers
    assert found.gather_s > 0
    assert found.start_s > 0
    return True


def test_agents_killed_in_turn(begin: Begin) -> None:
    field = begin(0, 1, 2)
    scheduler = field.scheduler
    for worker in (0, 1, 2):
        field.start(worker, "--nnodes=3")
    field.trains(0, 0, 1, 2)

    field.kill(0)
    assert scheduler.members(1, 2) == 1
    field.trains(1, 1, 2)
    eventually(lambda: scheduler.told() == [1], "the kernel hears of generation 1")

    # A replacement dies before it has come; another comes.
    assert scheduler.members(1, 2, 3) == 2
    scheduler.exited(3, 137)
    assert scheduler.members(1, 2, 4) == 3
    field.start(4)
    field.trains(3, 1, 2, 4)

    field.kill(2)
    field.kill(1)
    assert scheduler.members(4) == 4
    field.trains(4, 4)
    field.finish()


def test_gloo_survives_a_death(begin: Begin) -> None:
    field = begin(0, 1)
    for worker in (0, 1):
        field.start(worker, script=("gloo",))
    field.trains(0, 0, 1)
    field.kill(0)
    field.scheduler.members(1)
    field.trains(1, 1)
    field.finish()


def test_a_failure_of_ones_own_ends_the_agent(begin: Begin) -> None:
    """Nobody else is gone, so that it is no change of members."""
    field = begin(0, 1)
    for worker in (0, 1):
        field.start(worker, "--rdzv-conf", "failure_wait=1")
    field.trains(0, 0, 1)
    (field.folder / "fail-0-1").touch()
    assert (field.end(0), field.end(1)) == (1, 1)


def test_restarts_that_are_left_are_used_by_all(begin: Begin) -> None:
    """The generation is the same: its members meet once more."""
    field = begin(0, 1)
    for worker in (0, 1):
        field.start(worker, "--max-restarts=1", "--rdzv-conf", "failure_wait=0.5")
    field.trains(0, 0, 1)
    (field.folder / "fail-0-1").touch()

    def has_restarted() -> bool:
        # Whether an agent's own processes had failed as well by then is a matter of chance.
        return [line.size for line in field.journal()] == ["2"] * 4

    eventually(has_restarted, "both do a step again")
    field.finish()
