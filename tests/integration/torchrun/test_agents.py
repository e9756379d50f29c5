"""Real agents of torchrun meet, grow, shrink and die, without a single restart to spend."""

from tests.integration.torchrun.conftest import Begin
from tests.integration.torchrun.scheduler import eventually


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

    assert scheduler.members(0, 2) == 2
    field.trains(2, 0, 2)
    # The scheduler knows of the leaver's end before it hears that the others stand without it.
    assert field.end(1) == 0
    assert "go on without this worker" in field.log(1).read_text()
    assert scheduler.told() == [1]
    scheduler.exited(1, 0)
    eventually(lambda: scheduler.told() == [1, 2], "the kernel hears of generation 2")
    field.finish()
