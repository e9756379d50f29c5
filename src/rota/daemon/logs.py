"""The output of a job across its workers and attempts."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from dataclasses import dataclass

from rota.core.model import Ended, JobId
from rota.daemon.desk import Desk, NotFoundError
from rota.engines.base import Engine, LogQuery, WorkerId


@dataclass(frozen=True, slots=True)
class LogRequest:
    """`worker` None: all of them. `attempt` None: the newest, and with `follow` those to come."""

    job_id: JobId
    worker: int | None = None
    attempt: int | None = None
    tail: int | None = None
    since_s: float = 0.0
    follow: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    at_s: float
    attempt: int
    worker: int
    output: bytes


async def pieces(desk: Desk, engine: Engine, asked: LogRequest) -> AsyncIterator[Piece]:
    attempt = asked.attempt or await _first_attempt(desk, asked)
    while attempt is not None:
        async for piece in _attempt(desk, engine, asked, attempt=attempt):
            yield piece
        attempt = await _attempt_after(desk, asked, attempt)


async def _first_attempt(desk: Desk, asked: LogRequest) -> int | None:
    """The newest; with `follow`, a job that waits is waited for."""
    while True:
        job = desk.shell.kernel.job(asked.job_id) or desk.store.job(asked.job_id)
        if job is None or job.attempt or isinstance(job.phase, Ended) or not asked.follow:
            return job.attempt or None if job else None
        await desk.shell.changed()


async def _attempt_after(desk: Desk, asked: LogRequest, attempt: int) -> int | None:
    if not asked.follow or asked.attempt is not None:
        return None
    while True:
        job = desk.shell.kernel.job(asked.job_id)
        if job is None:
            return None
        if job.attempt > attempt:
            return attempt + 1
        await desk.shell.changed()


async def _attempt(
    desk: Desk, engine: Engine, asked: LogRequest, *, attempt: int
) -> AsyncIterator[Piece]:
    numbers = await _workers(desk, asked, attempt)
    query = LogQuery(tail=asked.tail, since_s=asked.since_s, follow=asked.follow)
    streams = [
        _stream(engine, WorkerId(asked.job_id, attempt, number), query) for number in numbers
    ]
    merged = _as_it_comes(streams) if asked.follow else _by_time(streams)
    async for piece in merged:
        yield piece


async def _workers(desk: Desk, asked: LogRequest, attempt: int) -> list[int]:
    """Whoever was in this attempt, once its start is on the disk."""
    known = {each.number: each for each in desk.store.attempts(asked.job_id)}
    while attempt not in known and _is_about_to_be(desk, asked.job_id, attempt):
        await desk.shell.changed()
        known = {each.number: each for each in desk.store.attempts(asked.job_id)}
    if attempt not in known:
        raise NotFoundError(f"job {asked.job_id} has had no attempt {attempt}")
    numbers = [worker.number for worker in known[attempt].workers]
    if asked.worker is None:
        return numbers
    if asked.worker not in numbers:
        raise NotFoundError(f"attempt {attempt} of job {asked.job_id} has no worker {asked.worker}")
    return [asked.worker]


def _is_about_to_be(desk: Desk, job_id: JobId, attempt: int) -> bool:
    job = desk.shell.kernel.job(job_id)
    return job is not None and job.attempt >= attempt


async def _stream(engine: Engine, worker: WorkerId, query: LogQuery) -> AsyncIterator[Piece]:
    async for chunk in engine.logs(worker, query):
        yield Piece(chunk.at_s, worker.attempt, worker.worker, chunk.output)


async def _by_time(streams: list[AsyncIterator[Piece]]) -> AsyncIterator[Piece]:
    """All workers' output in the order in which it was written."""
    heads: list[tuple[float, int, Piece]] = []
    for number, stream in enumerate(streams):
        if (piece := await anext(stream, None)) is not None:
            heapq.heappush(heads, (piece.at_s, number, piece))
    while heads:
        _, number, piece = heapq.heappop(heads)
        yield piece
        if (following := await anext(streams[number], None)) is not None:
            heapq.heappush(heads, (following.at_s, number, following))


async def _as_it_comes(streams: list[AsyncIterator[Piece]]) -> AsyncIterator[Piece]:
    if len(streams) == 1:
        async for piece in streams[0]:
            yield piece
        return
    queue: asyncio.Queue[Piece | None] = asyncio.Queue(maxsize=64)

    async def pump(stream: AsyncIterator[Piece]) -> None:
        async for piece in stream:
            await queue.put(piece)
        await queue.put(None)

    pumps = [asyncio.ensure_future(pump(stream)) for stream in streams]
    try:
        n_open = len(pumps)
        while n_open:
            piece = await queue.get()
            if piece is None:
                n_open -= 1
            else:
                yield piece
    finally:
        for each in pumps:
            each.cancel()
