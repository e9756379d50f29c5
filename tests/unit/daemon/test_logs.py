"""What a job printed, asked for at the wrong moment."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from rota.core.model import JobId, State
from rota.daemon.desk import Desk
from rota.daemon.logs import JobLogs, Piece
from rota.engines.base import Engine
from rota.wire.jobs import LogRange
from tests.builders import Lab, cluster, job


def read(lab: Lab, *, attempts: list[Any]) -> list[Piece]:
    async def never() -> None:
        await asyncio.Event().wait()

    store = SimpleNamespace(attempts=lambda _: attempts)
    desk = SimpleNamespace(shell=SimpleNamespace(kernel=lab.kernel, changed=never), store=store)
    logs = JobLogs(
        cast("Desk", desk), cast("Engine", None), JobId("a"), wanted=LogRange(follow=False)
    )

    async def all_of_them() -> list[Piece]:
        async with asyncio.timeout(30):
            return [piece async for piece in logs.pieces()]

    return asyncio.run(all_of_them())


def test_a_job_that_is_still_starting_has_printed_nothing():
    """A pod may wait for its image for minutes; whoever wants to wait, too, follows."""
    lab = Lab(cluster("1x2"))
    lab.submit(job("a"))
    lab.round()
    assert lab.job("a").state is State.STARTING
    assert read(lab, attempts=[]) == []
