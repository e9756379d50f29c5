"""Pacing of log requests: a node that refuses is left alone and does not delay other nodes."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rota.engines.kubernetes.logs import pacing
from rota.engines.kubernetes.logs.pacing import LogPacer

TURNS = 20


@pytest.fixture(autouse=True)
def without_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "PACE_S", 0.0)


def play(scenario: Callable[[LogPacer], Awaitable[None]]) -> None:
    async def act() -> None:
        async def wait_idle() -> None:
            pass

        async with asyncio.timeout(30):
            await scenario(LogPacer(wait_idle))

    asyncio.run(act())


async def goes(waiting: Awaitable[None]) -> bool:
    """Whether it may go, now that everybody had their turns."""
    task = asyncio.ensure_future(waiting)
    for _ in range(TURNS):
        await asyncio.sleep(0)
    is_done = task.done()
    task.cancel()
    return is_done


def test_a_node_that_refused_gets_no_request() -> None:
    async def scenario(pacer: LogPacer) -> None:
        await pacer.wait("mute", is_urgent=False)
        pacer.refused("mute")
        assert not await goes(pacer.wait("mute", is_urgent=False))
        assert not await goes(pacer.wait("mute", is_urgent=True))
        assert await goes(pacer.wait("other", is_urgent=False))

    play(scenario)


def test_a_node_without_output_gets_one_request_at_a_time() -> None:
    async def scenario(pacer: LogPacer) -> None:
        assert await goes(pacer.wait("new", is_urgent=False))
        assert not await goes(pacer.wait("new", is_urgent=False))
        assert await goes(pacer.wait("new", is_urgent=True))
        pacer.delivered("new")
        assert await goes(pacer.wait("new", is_urgent=False))
        assert await goes(pacer.wait("new", is_urgent=False))

    play(scenario)


def test_a_node_that_refused_gets_one_try_even_if_urgent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pacing, "BACKOFF_S", 0.0)

    async def scenario(pacer: LogPacer) -> None:
        pacer.refused("mute")
        assert await goes(pacer.wait("mute", is_urgent=True))
        assert not await goes(pacer.wait("mute", is_urgent=True))
        pacer.delivered("mute")
        assert await goes(pacer.wait("mute", is_urgent=True))
        assert await goes(pacer.wait("mute", is_urgent=True))

    play(scenario)


def test_the_back_off_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "BACKOFF_S", 0.0)

    async def scenario(pacer: LogPacer) -> None:
        pacer.refused("mute")
        assert await goes(pacer.wait("mute", is_urgent=True))
        monkeypatch.setattr(pacing, "BACKOFF_S", 1.0)
        for expected_s in (2.0, 4.0):
            pacer.refused("mute")
            node = pacer._nodes["mute"]
            assert node.backoff_until_s - asyncio.get_running_loop().time() > expected_s / 2
        pacer.delivered("mute")
        pacer.refused("mute")
        assert pacer._nodes["mute"].n_refused == 1

    play(scenario)


def test_an_urgent_request_does_not_wait_for_commands() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async def act() -> None:
        pacer = LogPacer(never)
        assert not await goes(pacer.wait("busy", is_urgent=False))
        assert await goes(pacer.wait("busy", is_urgent=True))

    asyncio.run(act())


def test_the_back_off_is_bounded() -> None:
    async def scenario(pacer: LogPacer) -> None:
        for _ in range(2_000):
            pacer.refused("mute")
        pacer.delivered("mute")
        assert await goes(pacer.wait("mute", is_urgent=True))

    play(scenario)
