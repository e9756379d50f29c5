"""The limit on concurrent requests, and waiting until no request waits."""

import asyncio

import pytest

from rota.kube.http import RequestLimiter

TURNS = 20


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def test_wait_idle_returns_when_no_request_waits() -> None:
    async def act() -> None:
        room, leave = RequestLimiter(1), asyncio.Event()

        async def stay() -> None:
            async with room:
                await leave.wait()

        guests = [asyncio.create_task(stay()) for _ in range(2)]
        await turns()
        wait_idle = asyncio.create_task(room.wait_idle(timeout_s=60.0))
        await turns()
        assert not wait_idle.done()
        guests[0].cancel()
        await turns()
        assert wait_idle.done(), "the second has its place now"
        leave.set()
        await guests[1]

    asyncio.run(act())


def test_a_cancelled_request_does_not_count_as_waiting() -> None:
    async def act() -> None:
        room = RequestLimiter(1)
        async with room:
            impatient = asyncio.create_task(room.__aenter__())
            await turns()
            impatient.cancel()
            with pytest.raises(asyncio.CancelledError):
                await impatient
            await room.wait_idle(timeout_s=60.0)
        async with asyncio.timeout(1), room:
            pass

    asyncio.run(act())


def test_wait_idle_times_out() -> None:
    async def act() -> None:
        room = RequestLimiter(1)
        async with room:
            waiting = asyncio.create_task(room.__aenter__())
            await turns()
            await room.wait_idle(timeout_s=0.0)
            assert not waiting.done()
            waiting.cancel()

    asyncio.run(act())
