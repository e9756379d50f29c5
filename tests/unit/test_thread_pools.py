"""Bounded pools of threads."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest

from rota import thread_pools
from rota.thread_pools import STUCK_S, ThreadPool, stuck_pools


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> ThreadPool:
    monkeypatch.setattr(thread_pools, "_POOLS", [])
    return ThreadPool("tests", 2)


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(run())


def test_one_thread_runs_calls_one_after_the_other(pool: ThreadPool) -> None:
    async def scenario() -> None:
        first = await pool.run(threading.get_ident)
        assert [await pool.run(threading.get_ident) for _ in range(3)] == [first] * 3
        assert first != threading.get_ident()

    play(scenario)


def test_a_thread_survives_a_call_that_raises(pool: ThreadPool) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    async def scenario() -> None:
        first = await pool.run(threading.get_ident)
        with pytest.raises(ZeroDivisionError):
            await pool.run(lambda: 1 // 0)
        with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
            await pool.run(interrupt)
        assert await pool.run(threading.get_ident) == first

    play(scenario)


def test_calls_have_the_context_of_their_caller(pool: ThreadPool) -> None:
    name = ContextVar("name", default="")

    async def scenario() -> None:
        name.set("ada")
        assert await pool.run(name.get) == "ada"

    play(scenario)


def test_a_full_pool_is_named_and_delays_no_other_pool(pool: ThreadPool) -> None:
    async def scenario() -> None:
        gate = threading.Event()
        blocked = [asyncio.ensure_future(pool.run(gate.wait)) for _ in range(5)]
        await asyncio.sleep(0)
        assert stuck_pools() == []
        assert pool.stuck_s(time.monotonic() + STUCK_S) >= STUCK_S
        assert await ThreadPool("other tests", 1).run(lambda: 7) == 7
        gate.set()
        assert await asyncio.gather(*blocked) == [True] * 5
        assert pool.stuck_s(time.monotonic() + STUCK_S) == 0

    play(scenario)


def test_a_call_whose_caller_gave_up_does_not_run(pool: ThreadPool) -> None:
    async def scenario() -> None:
        gate, ran = threading.Event(), list[int]()
        blocked = [asyncio.ensure_future(pool.run(gate.wait)) for _ in range(2)]
        late = asyncio.ensure_future(pool.run(ran.append, 1))
        await asyncio.sleep(0)
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        gate.set()
        await asyncio.gather(*blocked)
        assert (await pool.run(lambda: 7), ran) == (7, [])

    play(scenario)


@pytest.mark.usefixtures("pool")
def test_stuck_pools_tell_what_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadPool, "stuck_s", lambda *_: 75.0)
    assert stuck_pools() == ["all 2 threads for tests are busy, and a call has waited for 75 s"]
