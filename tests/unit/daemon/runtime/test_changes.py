"""Waiting for a change: one between the call and the first step of the coroutine counts."""

import asyncio
from typing import Any, cast

from rota.daemon.runtime.controller import Controller, ControllerDependencies
from rota.policies.registry import parse
from rota.store.memory import MemoryStore
from tests.support.builders import QUICK


def test_a_change_before_the_first_step_of_the_waiting_task_counts() -> None:
    async def scenario() -> None:
        parts = ControllerDependencies(MemoryStore(), cast("Any", None), lambda: 0.0, QUICK)
        controller = Controller(parts, parse("fifo"))
        waiting = asyncio.ensure_future(controller.changed())
        controller._announce()
        async with asyncio.timeout(60):
            await waiting

    asyncio.run(scenario())
