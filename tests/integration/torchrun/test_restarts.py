"""The daemon is started again in the middle of things."""

from tests.integration.torchrun.agents import AgentProcesses
from tests.integration.torchrun.conftest import Begin
from tests.integration.torchrun.scheduler import eventually


def test_at_the_barrier_and_while_they_train(begin: Begin) -> None:
    field = begin(0, 1)
    scheduler = field.scheduler
    field.start(0)
    eventually(lambda: waits(field), "the first is at the barrier")
    scheduler.stop()
    scheduler.start()
    field.start(1)
    field.trains(0, 0, 1)

    # Away: those who train notice nothing. Back: who comes is let in.
    scheduler.stop()
    before = len(field.journal())
    scheduler.start()
    assert scheduler.members(0, 1, 2) == 1
    field.start(2)
    field.trains(1, 0, 1, 2)
    assert len(field.journal()) == before + 3
    eventually(lambda: scheduler.told() == [1], "the kernel hears of generation 1")
    field.finish()


def test_what_was_not_told_before_is_told_afterwards(begin: Begin) -> None:
    """The daemon ends after all have met and before the kernel hears of it."""
    field = begin(0, 1)
    scheduler = field.scheduler
    field.start(0)
    field.start(1)
    field.trains(0, 0, 1)
    scheduler.members(0)
    assert field.end(1) == 0
    field.trains(1, 0)
    scheduler.stop()
    scheduler.start()
    assert scheduler.told() == []
    scheduler.exited(1, 0)
    eventually(lambda: scheduler.told() == [1], "the kernel hears of generation 1")
    field.finish()


def test_a_peer_dies_while_the_daemon_is_away(begin: Begin) -> None:
    field = begin(0, 1)
    scheduler = field.scheduler
    for worker in (0, 1):
        field.start(worker, "--rdzv-conf", "failure_wait=1")
    field.trains(0, 0, 1)
    scheduler.stop()
    field.kill_unseen(1)
    eventually(lambda: "Traceback" in field.log(0).read_text(), "the survivor's processes fail")
    scheduler.start()
    scheduler.exited(1, 137)
    scheduler.members(0)
    field.trains(1, 0)
    field.finish()


def waits(field: AgentProcesses) -> bool:
    return field.scheduler.at_the_barrier() == {0}
