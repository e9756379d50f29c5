"""Reads the output of a job, across its workers and attempts."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

from rota.core.model.job import Ended, JobId, Starting
from rota.daemon.access.authorization import Caller
from rota.daemon.errors import NotFoundError
from rota.daemon.jobs.job_lookup import JobDirectory
from rota.engines.interface import Engine, LogQuery, WorkerId
from rota.errors import UserError
from rota.wire.jobs import LogRange


@dataclass(frozen=True, slots=True)
class JobLogChunk:
    at_s: float
    attempt: int
    worker: int
    output: bytes
    place: str = ""

    @property
    def mark(self) -> str:
        """Position after this chunk, for a reader that continues later: see `LogRange.after`."""
        return f"{self.attempt}:{self.worker}:{self.place}" if self.place else ""


class LogReader:
    def __init__(self, directory: JobDirectory, engine: Engine) -> None:
        self._directory = directory
        self._engine = engine

    def open(self, caller: Caller, word: str, *, wanted: LogRange) -> JobLogs:
        """The output of a job that the caller may read. Raises if the job has no such attempt or
        worker."""
        job = self._directory.find_readable(caller, word)
        logs = JobLogs(self._directory, self._engine, job.id, wanted=wanted)
        logs.check()
        return logs


class JobLogs:
    """The output of one job. Without an attempt in `wanted`: the newest attempt. With `follow`:
    also output and attempts that are still to come."""

    def __init__(
        self, directory: JobDirectory, engine: Engine, job_id: JobId, *, wanted: LogRange
    ) -> None:
        self._directory = directory
        self._engine = engine
        self._job_id = job_id
        self._wanted = wanted
        self._read = _positions(wanted.after)
        """Attempt -> worker -> position up to which the caller has read."""

    def check(self) -> None:
        """Raises if the job has no such attempt or worker. Reads no output."""
        job = self._directory.get(self._job_id)
        attempt = self._wanted.attempt or (job.attempt if job else 0)
        if attempt and not self._is_starting(attempt):
            self._requested_workers(attempt)

    async def pieces(self) -> AsyncGenerator[JobLogChunk]:
        """Closing the generator closes the files and tasks behind it."""
        begun = max(self._read, default=None)
        attempt = begun or self._wanted.attempt or await self._first_attempt()
        while attempt is not None:
            async with aclosing(self._attempt(attempt)) as found:
                async for piece in found:
                    yield piece
            attempt = await self._attempt_after(attempt)

    async def _first_attempt(self) -> int | None:
        """The newest attempt. With `follow`: wait for the first attempt of a queued job."""
        while True:
            job = self._directory.get(self._job_id)
            if job is None or job.attempt or isinstance(job.phase, Ended):
                return (job.attempt or None) if job else None
            if not self._wanted.follow:
                return None
            await self._directory.changed()

    async def _attempt_after(self, attempt: int) -> int | None:
        if not self._wanted.follow or self._wanted.attempt is not None:
            return None
        while True:
            job = self._directory.live(self._job_id)
            if job is None:
                return None
            if job.attempt > attempt:
                return attempt + 1
            await self._directory.changed()

    async def _attempt(self, attempt: int) -> AsyncGenerator[JobLogChunk]:
        streams = [
            _stream(
                self._engine,
                WorkerId(self._job_id, attempt, number),
                query=self._query(attempt, number),
            )
            for number in await self._workers(attempt)
        ]
        merged = _as_it_comes(streams) if self._wanted.follow else _by_time(streams)
        async with aclosing(merged) as found:
            async for piece in found:
                yield piece

    def _query(self, attempt: int, worker: int) -> LogQuery:
        """A reader that continues repeats no `tail` and no `since_s`: these applied when the reader
        started. A worker without a position had printed nothing by then."""
        wanted = self._wanted
        if self._read:
            place = self._read.get(attempt, {}).get(worker, "")
            return LogQuery(follow=wanted.follow, place=place)
        return LogQuery(tail=wanted.tail, since_s=wanted.since_s, follow=wanted.follow)

    async def _workers(self, attempt: int) -> list[int]:
        """The workers of this attempt. With `follow`: wait until the workers have started."""
        while self._wanted.follow and self._is_starting(attempt):
            await self._directory.changed()
        try:
            return self._requested_workers(attempt)
        except NotFoundError:
            # The attempt has other workers. The response has started: it is too late for an error.
            return []

    def _requested_workers(self, attempt: int) -> list[int]:
        found = self._recorded_workers(attempt)
        if found is None:
            raise NotFoundError(f"job {self._job_id} has no attempt {attempt}")
        worker = self._wanted.worker
        if worker is None:
            return found
        if worker not in found:
            raise NotFoundError(f"attempt {attempt} of job {self._job_id} has no worker {worker}")
        return [worker]

    def _recorded_workers(self, attempt: int) -> list[int] | None:
        for each in self._directory.attempts(self._job_id):
            if each.number == attempt:
                return [worker.number for worker in each.workers]
        return None

    def _is_starting(self, attempt: int) -> bool:
        job = self._directory.live(self._job_id)
        if job is None or job.attempt != attempt:
            return False
        return isinstance(job.phase, Starting) or self._recorded_workers(attempt) is None


def _positions(marks: list[str]) -> dict[int, dict[int, str]]:
    found: dict[int, dict[int, str]] = {}
    for mark in marks:
        attempt, worker, place = mark.split(":", 2)
        found.setdefault(int(attempt), {})[int(worker)] = place
    return found


async def _stream(
    engine: Engine, worker: WorkerId, *, query: LogQuery
) -> AsyncIterator[JobLogChunk]:
    try:
        chunks = engine.logs(worker, query)
    except UserError:
        return  # the worker never started, so it has no log
    async for chunk in chunks:
        yield JobLogChunk(chunk.at_s, worker.attempt, worker.worker, chunk.output, chunk.place)


async def _by_time(streams: list[AsyncIterator[JobLogChunk]]) -> AsyncGenerator[JobLogChunk]:
    """The output of all workers in the order of its timestamps."""
    heads: list[tuple[float, int, JobLogChunk]] = []
    for number, stream in enumerate(streams):
        if (piece := await anext(stream, None)) is not None:
            heapq.heappush(heads, (piece.at_s, number, piece))
    while heads:
        _, number, piece = heapq.heappop(heads)
        yield piece
        if (following := await anext(streams[number], None)) is not None:
            heapq.heappush(heads, (following.at_s, number, following))


async def _as_it_comes(streams: list[AsyncIterator[JobLogChunk]]) -> AsyncGenerator[JobLogChunk]:
    if len(streams) == 1:
        async for piece in streams[0]:
            yield piece
        return
    queue: asyncio.Queue[JobLogChunk | Exception | None] = asyncio.Queue(maxsize=64)

    async def pump(stream: AsyncIterator[JobLogChunk]) -> None:
        try:
            async for piece in stream:
                await queue.put(piece)
            await queue.put(None)
        except Exception as error:  # noqa: BLE001 - the reader of the queue raises it again
            await queue.put(error)

    pumps = [asyncio.ensure_future(pump(stream)) for stream in streams]
    try:
        n_open = len(pumps)
        while n_open:
            piece = await queue.get()
            if isinstance(piece, Exception):
                raise piece
            if piece is None:
                n_open -= 1
            else:
                yield piece
    finally:
        for each in pumps:
            each.cancel()
