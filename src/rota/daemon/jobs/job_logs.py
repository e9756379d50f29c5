"""The output of a job across its workers and attempts."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from dataclasses import dataclass

from rota.core.model import Ended, JobId, Starting
from rota.daemon.desk import Desk
from rota.daemon.words import NotFoundError
from rota.engines.base import Engine, LogQuery, WorkerId
from rota.errors import UserError
from rota.wire.jobs import LogRange


@dataclass(frozen=True, slots=True)
class Piece:
    at_s: float
    attempt: int
    worker: int
    output: bytes
    place: str = ""

    @property
    def mark(self) -> str:
        """Where it ends, for who goes on reading: see `LogRange.after`."""
        return f"{self.attempt}:{self.worker}:{self.place}" if self.place else ""


class JobLogs:
    """The output of one job. Without an attempt in `wanted`, the newest; with `follow`, also those
    to come."""

    def __init__(self, desk: Desk, engine: Engine, job_id: JobId, *, wanted: LogRange) -> None:
        self._desk = desk
        self._engine = engine
        self._job_id = job_id
        self._wanted = wanted
        self._read = _places(wanted.after)
        """Attempt -> worker -> how far it has been read already."""

    def check(self) -> None:
        """Raises for an attempt or a worker that there is not, before anything is read."""
        job = self._desk.shell.kernel.job(self._job_id) or self._desk.store.job(self._job_id)
        attempt = self._wanted.attempt or (job.attempt if job else 0)
        if attempt and not self._is_about_to_be(attempt):
            self._found(attempt)

    async def pieces(self) -> AsyncIterator[Piece]:
        begun = max(self._read, default=None)
        attempt = begun or self._wanted.attempt or await self._first_attempt()
        while attempt is not None:
            async for piece in self._attempt(attempt):
                yield piece
            attempt = await self._attempt_after(attempt)

    async def _first_attempt(self) -> int | None:
        """The newest; with `follow`, a job that waits is waited for."""
        while True:
            job = self._desk.shell.kernel.job(self._job_id) or self._desk.store.job(self._job_id)
            if job is None or job.attempt or isinstance(job.phase, Ended):
                return (job.attempt or None) if job else None
            if not self._wanted.follow:
                return None
            await self._desk.shell.changed()

    async def _attempt_after(self, attempt: int) -> int | None:
        if not self._wanted.follow or self._wanted.attempt is not None:
            return None
        while True:
            job = self._desk.shell.kernel.job(self._job_id)
            if job is None:
                return None
            if job.attempt > attempt:
                return attempt + 1
            await self._desk.shell.changed()

    async def _attempt(self, attempt: int) -> AsyncIterator[Piece]:
        streams = [
            _stream(
                self._engine,
                WorkerId(self._job_id, attempt, number),
                query=self._query(attempt, number),
            )
            for number in await self._workers(attempt)
        ]
        async for piece in _as_it_comes(streams) if self._wanted.follow else _by_time(streams):
            yield piece

    def _query(self, attempt: int, worker: int) -> LogQuery:
        """What was to be left out was left out when the reading began. A worker without a mark had
        not printed anything then."""
        wanted = self._wanted
        if self._read:
            place = self._read.get(attempt, {}).get(worker, "")
            return LogQuery(follow=wanted.follow, place=place)
        return LogQuery(tail=wanted.tail, since_s=wanted.since_s, follow=wanted.follow)

    async def _workers(self, attempt: int) -> list[int]:
        """Whoever was in this attempt. Who follows waits until they have begun."""
        while self._wanted.follow and self._is_about_to_be(attempt):
            await self._desk.shell.changed()
        try:
            return self._found(attempt)
        except NotFoundError:
            # Others were in this one; an answer that has begun is no place to complain.
            return []

    def _found(self, attempt: int) -> list[int]:
        found = self._known(attempt)
        if found is None:
            raise NotFoundError(f"job {self._job_id} has had no attempt {attempt}")
        worker = self._wanted.worker
        if worker is None:
            return found
        if worker not in found:
            raise NotFoundError(f"attempt {attempt} of job {self._job_id} has no worker {worker}")
        return [worker]

    def _known(self, attempt: int) -> list[int] | None:
        for each in self._desk.store.attempts(self._job_id):
            if each.number == attempt:
                return [worker.number for worker in each.workers]
        return None

    def _is_about_to_be(self, attempt: int) -> bool:
        job = self._desk.shell.kernel.job(self._job_id)
        if job is None or job.attempt != attempt:
            return False
        return isinstance(job.phase, Starting) or self._known(attempt) is None


def _places(marks: list[str]) -> dict[int, dict[int, str]]:
    found: dict[int, dict[int, str]] = {}
    for mark in marks:
        attempt, worker, place = mark.split(":", 2)
        found.setdefault(int(attempt), {})[int(worker)] = place
    return found


async def _stream(engine: Engine, worker: WorkerId, *, query: LogQuery) -> AsyncIterator[Piece]:
    try:
        chunks = engine.logs(worker, query)
    except UserError:
        return  # it never came so far as to print anything
    async for chunk in chunks:
        yield Piece(chunk.at_s, worker.attempt, worker.worker, chunk.output, chunk.place)


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
    queue: asyncio.Queue[Piece | Exception | None] = asyncio.Queue(maxsize=64)

    async def pump(stream: AsyncIterator[Piece]) -> None:
        try:
            async for piece in stream:
                await queue.put(piece)
            await queue.put(None)
        except Exception as error:  # noqa: BLE001 - it is raised again, where it is waited for
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
