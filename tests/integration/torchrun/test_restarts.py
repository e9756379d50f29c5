"""Restarts of the daemon during a rendezvous and during training."""

from tests.integration.torchrun.agents import AgentProcesses
from tests.integration.torchrun.conftest import Begin
from tests.integration.torchrun.scheduler import eventually


def test_daemon_restarts_at_the_barrier_and_during_training(begin: Begin) -> None:
    field = begin(0, 1)
    scheduler = field.scheduler
    field.start(0)
    eventually(lambda: waits(field), "the first is at the barrier")
    scheduler.stop()
    scheduler.start()
    field.start(1)
    field.trains(0, 0, 1)

    # Training continues while the daemon is away. After its return, a new worker can join.
    scheduler.stop()
    before = len(field.journal())
    scheduler.start()
    assert scheduler.members(0, 1, 2) == 1
    field.start(2)
    field.trains(1, 0, 1, 2)
    assert len(field.journal()) == before + 3
    eventually(lambda: scheduler.told() == [1], "the kernel hears of generation 1")
    field.finish()


def test_restarted_daemon_reports_the_generation_to_the_kernel(begin: Begin) -> None:
    """The daemon ends after the rendezvous and before the report to the kernel."""
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


def test_agent_that_dies_while_the_daemon_is_away_is_handled_later(begin: Begin) -> None:
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
