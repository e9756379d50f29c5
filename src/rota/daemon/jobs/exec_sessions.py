"""Reaching into running jobs: commands beside their workers, connections to their ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from rota.core.model import Job, Running
from rota.daemon.desk import Desk, NotFoundError
from rota.daemon.people import Caller
from rota.daemon.words import standing
from rota.engines.base import Engine, Session, Terminal, Visit, WorkerId
from rota.errors import UnavailableError, UserError
from rota.wire.sessions import Entry

log = structlog.get_logger()

MOST_COMMANDS = 32
MOST_CONNECTIONS = 256
"""Of one user at a time; a browser alone opens half a dozen for a page."""
MOST_BYTES = 64 * 1024
MOST_CELLS = 10_000
LONGEST_TERMINAL = 64


@dataclass(frozen=True, slots=True)
class Place:
    """A worker that a caller may reach into."""

    user: str
    worker: WorkerId


class Visits:
    def __init__(self, desk: Desk, engine: Engine) -> None:
        self._desk = desk
        self._engine = engine
        self._n_open: Counter[tuple[str, str]] = Counter()

    def place(self, caller: Caller, word: str, *, worker: int | None) -> Place:
        """The worker of this number, else the first; if the job runs and the caller may."""
        job = self._desk.reach(caller, word)
        numbers = _running(job)
        if worker is None:
            worker = numbers[0]
        if worker not in numbers:
            some = ", ".join(str(number) for number in numbers[:20])
            raise NotFoundError(f"job {job.id} has no worker {worker}", f"it has {some}")
        return Place(caller.user, WorkerId(job.id, job.attempt, worker))

    @asynccontextmanager
    async def command(self, place: Place, entry: Entry) -> AsyncGenerator[Session]:
        visit = _visit(entry)

        async def begin() -> Session:
            return await self._engine.visit(place.worker, visit)

        async with self._counted(place, "command", most=MOST_COMMANDS, begin=begin) as session:
            yield session

    @asynccontextmanager
    async def connection(self, place: Place, port: int) -> AsyncGenerator[Session]:
        async def begin() -> Session:
            return await self._engine.connect(place.worker, port)

        async with self._counted(
            place, "connection", most=MOST_CONNECTIONS, begin=begin
        ) as session:
            yield session

    @asynccontextmanager
    async def _counted(
        self, place: Place, kind: str, *, most: int, begin: Callable[[], Awaitable[Session]]
    ) -> AsyncGenerator[Session]:
        key = (place.user, kind)
        if self._n_open[key] >= most:
            what = f"{place.user} has {most} {kind}s open"
            raise UnavailableError(what, "close some of them")
        self._n_open[key] += 1
        about = {"job_id": place.worker.job_id, "worker": place.worker.worker, "user": place.user}
        try:
            session = await begin()
            log.info(f"{kind}.opened", **about)
            try:
                yield session
            finally:
                session.close()
                log.info(f"{kind}.closed", **about)
        finally:
            self._n_open[key] -= 1
            if not self._n_open[key]:
                del self._n_open[key]


def _running(job: Job) -> tuple[int, ...]:
    if not isinstance(job.phase, Running):
        raise UserError(f"job {job.id} does not run: {standing(job)}", "'rota show' says why")
    return tuple(number for number in job.phase.numbers if number not in job.phase.exits)


def _visit(entry: Entry) -> Visit:
    words = entry.command
    if sum(len(word.encode(errors="replace")) for word in words) > MOST_BYTES:
        raise UserError(f"the command has more than {MOST_BYTES} bytes", "put it into a script")
    if any("\0" in word for word in words) or words[:1] == [""]:
        raise UserError("the command has an empty first word, or a zero byte in one")
    if not entry.columns:
        return Visit(tuple(words))
    kind = entry.terminal
    is_plain = kind.isascii() and kind.replace("-", "").replace("_", "").replace(".", "").isalnum()
    if not is_plain or len(kind) > LONGEST_TERMINAL:
        kind = "dumb"
    return Visit(tuple(words), Terminal(*bounded(entry.rows, entry.columns), kind))


def bounded(rows: int, columns: int) -> tuple[int, int]:
    return min(max(rows, 1), MOST_CELLS), min(max(columns, 1), MOST_CELLS)
