"""Orders of the daemon, as a worker hears them."""

import pytest

from rota_trainer.live.membership import Membership, Opened
from rota_trainer.messages import Member, Orders, Switch
from rota_trainer.place import Place
from rota_trainer.reporter import Reporter
from rota_trainer.tally import Tally


class Heard:
    """A worker in generation 4 whose process group of `opened` is open, as orders come."""

    def __init__(self, *, opened: int) -> None:
        self.aborted = 0
        place = Place(worker=1)
        reporter = Reporter(place, Tally(0, None))
        self._members = Membership(place, reporter, identity="", address="127.0.0.1:1")
        self._members.generation = 4
        self._members.opened = Opened(opened, self._abort)
        self._hear = reporter.on_orders

    def _abort(self) -> None:
        self.aborted += 1

    def hears(self, generation: int, *, is_broken: bool) -> None:
        members = [Member(0, "127.0.0.1:2"), Member(1, "127.0.0.1:1")]
        self._hear(Orders(switch=Switch(generation, members, is_broken)))


@pytest.mark.parametrize(
    ("opened", "generation", "is_broken", "aborted"),
    [
        pytest.param(4, 5, True, 1, id="the step that waits for the dead is broken off"),
        pytest.param(4, 5, False, 0, id="nobody is gone: the step is finished"),
        pytest.param(5, 5, True, 0, id="the order is repeated while it is followed"),
        pytest.param(5, 6, True, 1, id="somebody is gone from those who come together"),
    ],
)
def test_what_an_order_breaks_off(
    opened: int, generation: int, is_broken: bool, aborted: int
) -> None:
    worker = Heard(opened=opened)
    worker.hears(generation, is_broken=is_broken)
    assert worker.aborted == aborted
