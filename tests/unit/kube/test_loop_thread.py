"""What goes on aside does not wait for a loop that is busy."""

import asyncio
import threading

import pytest

from rota.engines.kubernetes.aside import Aside
from rota.errors import RotaError


def test_it_goes_on_while_the_other_loop_is_blocked() -> None:
    steps = threading.Semaphore(0)

    async def step() -> None:
        while True:
            steps.release()
            await asyncio.sleep(0)

    async def run() -> None:
        aside = Aside("test")
        stepping = asyncio.ensure_future(aside.run(step()))
        await asyncio.sleep(0)
        # Nothing else happens in this loop meanwhile.
        for _ in range(10):
            assert steps.acquire(timeout=30)
        stepping.cancel()
        await asyncio.gather(stepping, return_exceptions=True)
        await aside.close()

    asyncio.run(run())


def test_how_it_ends_is_told_to_who_waits() -> None:
    async def fail() -> None:
        raise RotaError("the lease is lost")

    async def run() -> None:
        aside = Aside("test")
        with pytest.raises(RotaError, match="the lease is lost"):
            await aside.run(fail())
        await aside.close()

    asyncio.run(run())
