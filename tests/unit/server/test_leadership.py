"""When a daemon of a cluster may lead."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from rota.errors import UnavailableError
from rota.kube.errors import ApiError
from rota.server import leadership
from rota.server.leadership import LeaderCandidate

OUTDATED = UnavailableError("the definition is of another version")


class Place:
    """A lease, a thread and a cluster. What is wrong with the cluster's definition at each look,
    and what was done."""

    holder, problem = "", ""

    def __init__(self, *wrong: UnavailableError | None) -> None:
        self._wrong = list(wrong)
        self.done: list[str] = []
        self.said: list[str] = []
        made: Any = self
        self.turn = LeaderCandidate(made, made)

    async def run(self, work: Coroutine[None, None, None]) -> None:
        await work

    async def acquire(self) -> None:
        self.done.append("acquire")

    async def release(self) -> None:
        self.done.append("give up")

    async def check(self) -> None:
        await self.check_schema()

    async def check_schema(self) -> None:
        self.said.append(self.turn.why())
        if self._wrong and (error := self._wrong.pop(0)):
            raise error


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "RETRY_S", 0.0)


def begun(*wrong: UnavailableError | None) -> Place:
    place = Place(*wrong)
    made: Any = place
    asyncio.run(place.turn.wait(made))
    return place


def test_a_daemon_that_cannot_lead_does_not_take_the_lease() -> None:
    place = begun(OUTDATED, OUTDATED)
    assert place.done == ["acquire"]
    assert str(OUTDATED) in place.said
    assert "another daemon leads" in place.turn.why()


def test_a_problem_that_appears_during_the_wait_is_detected() -> None:
    assert begun(None, OUTDATED, OUTDATED).done == ["acquire", "give up", "acquire"]


def test_an_unreachable_cluster_does_not_stop_the_wait_for_the_lease() -> None:
    assert begun(ApiError(401, "Unauthorized", "unauthorized")).done == ["acquire"]
