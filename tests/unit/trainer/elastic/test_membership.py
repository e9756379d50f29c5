"""Orders of the daemon in a live worker."""

import time

import pytest

from rota_trainer.elastic.membership import MembershipClient, OpenProcessGroup
from rota_trainer.progress.tally import Tally
from rota_trainer.reporting.environment import WorkerEnvironment
from rota_trainer.reporting.messages import Member, Orders, Switch
from rota_trainer.reporting.reporter import Reporter


class Heard:
    """A worker in generation 4 whose process group of `opened` is open, as orders come."""

    def __init__(self, *, opened: int, forming_for_s: float | None = None) -> None:
        self.aborted = 0
        place = WorkerEnvironment(worker=1)
        reporter = Reporter(place, Tally(0, None))
        self._members = MembershipClient(place, reporter, identity="", address="127.0.0.1:1")
        self._members.generation = 4
        self._members.opened = OpenProcessGroup(opened, self._abort, forming_for_s is not None)
        self._members._moved_s = time.monotonic() - (forming_for_s or 0.0)
        self.hears_of = reporter.take_orders

    def _abort(self) -> None:
        self.aborted += 1

    def hears(self, generation: int, *, is_broken: bool) -> None:
        members = [Member(0, "127.0.0.1:2"), Member(1, "127.0.0.1:1")]
        self.hears_of(Orders(switch=Switch(generation, members, is_broken)))


@pytest.mark.parametrize(
    ("opened", "generation", "is_broken", "aborted"),
    [
        pytest.param(4, 5, True, 1, id="a worker is dead: the step is aborted"),
        pytest.param(4, 5, False, 0, id="all workers live: the step is finished"),
        pytest.param(5, 5, True, 0, id="the order is repeated while it is followed"),
        pytest.param(5, 6, True, 1, id="a joining worker is dead: the step is aborted"),
    ],
)
def test_orders_that_abort_a_step(
    opened: int, generation: int, is_broken: bool, aborted: int
) -> None:
    worker = Heard(opened=opened)
    worker.hears(generation, is_broken=is_broken)
    assert worker.aborted == aborted


NEWER = Orders(switch=Switch(6, [Member(1, "127.0.0.1:1")], is_broken=False))


@pytest.mark.parametrize(
    ("forming_for_s", "orders", "aborted"),
    [
        pytest.param(60.0, NEWER, 1, id="a worker knows a newer generation"),
        pytest.param(60.0, Orders(stop="preempted"), 1, id="a worker has to stop"),
        pytest.param(60.0, Orders(), 0, id="no other order"),
        pytest.param(-60.0, NEWER, 0, id="the wait has just begun"),
    ],
)
def test_orders_that_abort_a_forming_group(
    forming_for_s: float, orders: Orders, aborted: int
) -> None:
    worker = Heard(opened=5, forming_for_s=forming_for_s)
    worker.hears_of(orders)
    assert worker.aborted == aborted


def test_stop_order_does_not_abort_a_step() -> None:
    worker = Heard(opened=4)
    worker.hears_of(Orders(stop="preempted"))
    assert worker.aborted == 0
