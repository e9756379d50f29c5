"""Users share the event loop: by turns, by rate, and by used CPU time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rota.api.fair_queue import CPU_BURST_S, RATE_BURST_S, RATE_WAIT_S, FairQueue
from rota.daemon.errors import LimitError


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_newcomer_does_not_wait_for_all_requests_of_another_user():
    order: list[str] = []

    async def ask(queue: FairQueue, user: str) -> None:
        await queue.turn(user)
        order.append(user)

    async def scenario() -> None:
        queue = FairQueue()
        flood = [asyncio.ensure_future(ask(queue, "eve")) for _ in range(50)]
        await asyncio.sleep(0)
        await ask(queue, "ada")
        assert order.count("eve") <= 3
        await asyncio.gather(*flood)

    asyncio.run(scenario())
    assert order.count("eve") == 50


def test_a_cancelled_request_gives_up_its_turn():
    async def scenario() -> None:
        queue = FairQueue()
        await queue.turn("eve")
        waiting = [asyncio.ensure_future(queue.turn("eve")) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.gather(*waiting[1:])

    asyncio.run(scenario())


def test_requests_above_the_rate_wait_and_then_are_refused():
    clock = Clock()
    n_allowed = int(10 * (RATE_BURST_S + RATE_WAIT_S))

    async def scenario() -> None:
        queue = FairQueue(10, clock=clock)
        asked = [
            asyncio.ensure_future(queue.request("eve", rate_key="eve"))
            for _ in range(n_allowed + 5)
        ]
        await queue.request("ada", rate_key="ada")
        await queue.request("eve", rate_key="eve job-1")
        await asyncio.sleep(0)
        refused = [each for each in asked if each.done() and each.exception()]
        assert 4 <= len(refused) <= 6
        with pytest.raises(LimitError, match="max_requests_per_s"):
            raise refused[0].exception() or AssertionError
        for each in asked:
            each.cancel()
        await asyncio.wait(asked)
        clock.now_s += RATE_WAIT_S + RATE_BURST_S
        await queue.request("eve", rate_key="eve")

    asyncio.run(scenario())


def has_turn_at_once(queue: FairQueue, user: str) -> Callable[[], Coroutine[Any, Any, bool]]:
    async def ask() -> bool:
        turn = asyncio.ensure_future(queue.turn(user))
        for _ in range(5):
            await asyncio.sleep(0)
        is_done = turn.done()
        turn.cancel()
        await asyncio.wait([turn])
        return is_done

    return ask


def test_a_user_who_used_up_the_cpu_waits_only_while_others_are_active():
    clock = Clock()

    async def scenario() -> None:
        queue = FairQueue(cpu_percent=50, clock=clock)
        eve, ada = has_turn_at_once(queue, "eve"), has_turn_at_once(queue, "ada")
        queue.charge("eve", 10 * CPU_BURST_S)
        assert await eve()
        assert await ada()
        assert not await eve()
        assert await ada()
        clock.now_s += 2.0
        assert await eve()

    asyncio.run(scenario())


def test_a_charged_coroutine_behaves_like_the_coroutine():
    async def work() -> str:
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="inside"):
            await fails()
        return "done"

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("inside")

    async def broken() -> None:
        await asyncio.sleep(0)
        raise KeyError

    async def scenario() -> None:
        queue = FairQueue()
        assert await queue.run("ada", work()) == "done"
        with pytest.raises(KeyError):
            await queue.run("ada", broken())
        task = asyncio.ensure_future(queue.run("ada", asyncio.sleep(1000)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
