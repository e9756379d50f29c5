"""Logs of jobs that are starting, and logs that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rota.core.lifecycle.states import JobState
from rota.core.model.job import JobId
from rota.daemon.jobs.job_logs import JobLogChunk, JobLogs
from rota.daemon.jobs.job_lookup import JobDirectory
from rota.engines.interface import Engine, LogChunk, LogQuery, WorkerId
from rota.wire.jobs import LogRange
from tests.support.builders import Lab, cluster, job


def read(lab: Lab, *, attempts: list[Any], engine: object = None) -> list[JobLogChunk]:
    """All chunks of the log. Follows the log if there is an engine."""

    async def never() -> None:
        await asyncio.Event().wait()

    store = SimpleNamespace(attempts=lambda _: attempts)
    controller = SimpleNamespace(job=lab.kernel.job, changed=never)
    logs = JobLogs(
        JobDirectory(cast("Any", controller), cast("Any", store)),
        cast("Engine", engine),
        JobId("a"),
        wanted=LogRange(follow=engine is not None),
    )

    async def all_of_them() -> list[JobLogChunk]:
        async with asyncio.timeout(30):
            return [piece async for piece in logs.pieces()]

    return asyncio.run(all_of_them())


def test_a_starting_job_has_no_output():
    """A pod may wait for its image for minutes; only a reader that follows waits, too."""
    lab = Lab(cluster("1x2"))
    lab.submit(job("a"))
    lab.round()
    assert lab.job("a").state is JobState.STARTING
    assert read(lab, attempts=[]) == []


def test_an_unreadable_log_of_one_worker_ends_the_stream():
    """The reader must not wait forever."""
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
