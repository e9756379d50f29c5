"""What a job printed, asked for at the wrong moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rota.core.model import JobId, State
from rota.daemon.desk import Desk
from rota.daemon.logs import JobLogs, Piece
from rota.engines.base import Engine, LogChunk, LogQuery, WorkerId
from rota.wire.jobs import LogRange
from tests.builders import Lab, cluster, job


def read(lab: Lab, *, attempts: list[Any], engine: object = None) -> list[Piece]:
    """Whoever has an engine to ask follows."""

    async def never() -> None:
        await asyncio.Event().wait()

    store = SimpleNamespace(attempts=lambda _: attempts)
    desk = SimpleNamespace(shell=SimpleNamespace(kernel=lab.kernel, changed=never), store=store)
    logs = JobLogs(
        cast("Desk", desk),
        cast("Engine", engine),
        JobId("a"),
        wanted=LogRange(follow=engine is not None),
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


def test_one_of_many_that_cannot_be_read_ends_it_for_whoever_follows():
    """Nobody waits for what does not come."""
    lab = Lab(cluster("1x2"))
    lab.run(job("a", gpus=2))

    async def chunks(worker: WorkerId, _: LogQuery) -> AsyncIterator[LogChunk]:
        if worker.worker == 1:
            raise KeyError("x")
        await asyncio.Event().wait()
        yield LogChunk(0.0, b"")

    workers = [SimpleNamespace(number=number) for number in (0, 1)]
    attempts: list[Any] = [SimpleNamespace(number=1, workers=workers)]
    with pytest.raises(KeyError):
        read(lab, attempts=attempts, engine=SimpleNamespace(logs=chunks))
