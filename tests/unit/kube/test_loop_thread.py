"""Work in a loop thread continues while the main loop is busy."""

import asyncio
import threading

import pytest

from rota.errors import RotaError
from rota.kube.loop_thread import LoopThread
from tests.support.timeouts import PATIENCE_S


def test_work_continues_while_the_main_loop_is_blocked() -> None:
    steps = threading.Semaphore(0)

    async def step() -> None:
        while True:
            steps.release()
            await asyncio.sleep(0)

    async def run() -> None:
        aside = LoopThread("test")
        stepping = asyncio.ensure_future(aside.run(step()))
        await asyncio.sleep(0)
        # Nothing else happens in this loop meanwhile.
        for _ in range(10):
            assert steps.acquire(timeout=PATIENCE_S)
        stepping.cancel()
        await asyncio.gather(stepping, return_exceptions=True)
        await aside.close()

    asyncio.run(run())


def test_results_and_errors_reach_the_caller() -> None:
    async def fail() -> None:
        raise RotaError("the lease is lost")

    async def run() -> None:
        aside = LoopThread("test")
        with pytest.raises(RotaError, match="the lease is lost"):
            await aside.run(fail())
        await aside.close()

    asyncio.run(run())
