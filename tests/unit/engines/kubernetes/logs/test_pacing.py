"""Logs are asked for gently: a node that gives none is left alone, and holds up nobody else."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rota.engines.kubernetes import log_lane
from rota.engines.kubernetes.log_lane import LogLane

TURNS = 20


@pytest.fixture(autouse=True)
def without_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lane, "PACE_S", 0.0)


def play(scenario: Callable[[LogLane], Awaitable[None]]) -> None:
    async def act() -> None:
        async def lull() -> None:
            pass

        async with asyncio.timeout(30):
            await scenario(LogLane(lull))

    asyncio.run(act())


async def goes(waiting: Awaitable[None]) -> bool:
    """Whether it may go, now that everybody had their turns."""
    task = asyncio.ensure_future(waiting)
    for _ in range(TURNS):
        await asyncio.sleep(0)
    is_done = task.done()
    task.cancel()
    return is_done


def test_a_node_that_refused_is_asked_by_nobody() -> None:
    async def scenario(lane: LogLane) -> None:
        await lane.wait("mute", is_pressing=False)
        lane.refused("mute")
        assert not await goes(lane.wait("mute", is_pressing=False))
        assert not await goes(lane.wait("mute", is_pressing=True))
        assert await goes(lane.wait("other", is_pressing=False))

    play(scenario)


def test_a_node_that_has_not_spoken_is_asked_by_one_at_a_time() -> None:
    async def scenario(lane: LogLane) -> None:
        assert await goes(lane.wait("new", is_pressing=False))
        assert not await goes(lane.wait("new", is_pressing=False))
        assert await goes(lane.wait("new", is_pressing=True))
        lane.heard("new")
        assert await goes(lane.wait("new", is_pressing=False))
        assert await goes(lane.wait("new", is_pressing=False))

    play(scenario)


def test_a_node_that_refused_before_is_tried_by_one_whatever_presses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_lane, "SILENT_S", 0.0)

    async def scenario(lane: LogLane) -> None:
        lane.refused("mute")
        assert await goes(lane.wait("mute", is_pressing=True))
        assert not await goes(lane.wait("mute", is_pressing=True))
        lane.heard("mute")
        assert await goes(lane.wait("mute", is_pressing=True))
        assert await goes(lane.wait("mute", is_pressing=True))

    play(scenario)


def test_a_node_is_left_alone_for_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lane, "SILENT_S", 0.0)

    async def scenario(lane: LogLane) -> None:
        lane.refused("mute")
        assert await goes(lane.wait("mute", is_pressing=True))
        monkeypatch.setattr(log_lane, "SILENT_S", 1.0)
        for expected_s in (2.0, 4.0):
            lane.refused("mute")
            node = lane._nodes["mute"]
            assert node.silent_until_s - asyncio.get_running_loop().time() > expected_s / 2
        lane.heard("mute")
        lane.refused("mute")
        assert lane._nodes["mute"].n_refused == 1

    play(scenario)


def test_what_is_pressing_does_not_wait_for_a_lull() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async def act() -> None:
        lane = LogLane(never)
        assert not await goes(lane.wait("busy", is_pressing=False))
        assert await goes(lane.wait("busy", is_pressing=True))

    asyncio.run(act())


def test_a_node_that_refused_for_days_is_asked_again() -> None:
    async def scenario(lane: LogLane) -> None:
        for _ in range(2_000):
            lane.refused("mute")
        lane.heard("mute")
        assert await goes(lane.wait("mute", is_pressing=True))

    play(scenario)
