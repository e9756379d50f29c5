"""Real agents of torchrun join, leave and die with `--max-restarts 0`."""

from tests.integration.torchrun.conftest import Begin
from tests.integration.torchrun.scheduler import JOB, FakeScheduler, eventually


def test_job_grows_from_one_to_three_agents_and_shrinks_to_two(begin: Begin) -> None:
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
    # The scheduler learns of the exit of worker 1 before the report of the new generation.
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


def test_job_survives_agents_killed_in_turn(begin: Begin) -> None:
    field = begin(0, 1, 2)
    scheduler = field.scheduler
    for worker in (0, 1, 2):
        field.start(worker, "--nnodes=3")
    field.trains(0, 0, 1, 2)

    field.kill(0)
    assert scheduler.members(1, 2) == 1
    field.trains(1, 1, 2)
    eventually(lambda: scheduler.told() == [1], "the kernel hears of generation 1")

    # A replacement dies before it joins; the next one joins.
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


def test_failure_of_its_own_process_ends_the_agent(begin: Begin) -> None:
    """All other members are alive, so that the membership does not change."""
    field = begin(0, 1)
    for worker in (0, 1):
        field.start(worker, "--rdzv-conf", "failure_wait=1")
    field.trains(0, 0, 1)
    (field.folder / "fail-0-1").touch()
    assert (field.end(0), field.end(1)) == (1, 1)


def test_remaining_restarts_restart_all_agents(begin: Begin) -> None:
    """The generation stays the same: its members repeat the rendezvous."""
    field = begin(0, 1)
    for worker in (0, 1):
        field.start(worker, "--max-restarts=1", "--rdzv-conf", "failure_wait=0.5")
    field.trains(0, 0, 1)
    (field.folder / "fail-0-1").touch()

    def has_restarted() -> bool:
        # The processes of an agent may or may not have failed by then.
        return [line.size for line in field.journal()] == ["2"] * 4

    eventually(has_restarted, "both do a step again")
    field.finish()
