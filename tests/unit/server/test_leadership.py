"""When a daemon of a cluster may begin."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from rota.api import turn
from rota.api.turn import Turn
from rota.engines.kubernetes.api import ApiError
from rota.errors import UnavailableError

OUTDATED = UnavailableError("the definition is of another version")


class Place:
    """A lease, a thread and a cluster. What is wrong with the cluster's definition at each look,
    and what was done."""

    holder, trouble = "", ""

    def __init__(self, *wrong: UnavailableError | None) -> None:
        self._wrong = list(wrong)
        self.done: list[str] = []
        self.said: list[str] = []
        made: Any = self
        self.turn = Turn(made, made)

    async def run(self, work: Coroutine[None, None, None]) -> None:
        await work

    async def acquire(self) -> None:
        self.done.append("acquire")

    async def give_up(self) -> None:
        self.done.append("give up")

    async def check(self) -> None:
        await self.look()

    async def look(self) -> None:
        self.said.append(self.turn.why())
        if self._wrong and (error := self._wrong.pop(0)):
            raise error


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "AGAIN_S", 0.0)


def begun(*wrong: UnavailableError | None) -> Place:
    place = Place(*wrong)
    made: Any = place
    asyncio.run(place.turn.wait(made))
    return place


def test_one_that_could_not_command_leaves_the_lease_to_others() -> None:
    place = begun(OUTDATED, OUTDATED)
    assert place.done == ["acquire"]
    assert str(OUTDATED) in place.said
    assert "commands" in place.turn.why()


def test_what_turned_wrong_while_it_waited_is_noticed() -> None:
    assert begun(None, OUTDATED, OUTDATED).done == ["acquire", "give up", "acquire"]


def test_for_a_cluster_that_does_not_answer_the_lease_is_waited_for() -> None:
    assert begun(ApiError(401, "Unauthorized", "unauthorized")).done == ["acquire"]
