"""So many at once; and a lull when nobody waits."""

import asyncio

import pytest

from rota.engines.kubernetes.rooms import Room

TURNS = 20


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def test_a_lull_comes_when_nobody_waits_for_a_place() -> None:
    async def act() -> None:
        room, leave = Room(1), asyncio.Event()

        async def stay() -> None:
            async with room:
                await leave.wait()

        guests = [asyncio.create_task(stay()) for _ in range(2)]
        await turns()
        lull = asyncio.create_task(room.lull(most_s=60.0))
        await turns()
        assert not lull.done()
        guests[0].cancel()
        await turns()
        assert lull.done(), "the second has its place now"
        leave.set()
        await guests[1]

    asyncio.run(act())


def test_who_gives_up_waiting_is_not_waited_for() -> None:
    async def act() -> None:
        room = Room(1)
        async with room:
            impatient = asyncio.create_task(room.__aenter__())
            await turns()
            impatient.cancel()
            with pytest.raises(asyncio.CancelledError):
                await impatient
            await room.lull(most_s=60.0)
        async with asyncio.timeout(1), room:
            pass

    asyncio.run(act())


def test_a_lull_that_does_not_come_is_not_waited_for_for_ever() -> None:
    async def act() -> None:
        room = Room(1)
        async with room:
            waiting = asyncio.create_task(room.__aenter__())
            await turns()
            await room.lull(most_s=0.0)
            assert not waiting.done()
            waiting.cancel()

    asyncio.run(act())
