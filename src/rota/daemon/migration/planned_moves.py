"""The planned moves: in memory for fast reads, and in a journal that survives a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from rota.core.lifecycle.states import JobState
from rota.core.model.job import Job, JobId
from rota.daemon.migration.requests import WAITS, Move, MoveJournal
from rota.errors import UnavailableError

log = structlog.get_logger()

LOAD_RETRY_S = 60.0


class PlannedMoves:
    def __init__(self, journal: MoveJournal, clock: Callable[[], float]) -> None:
        self._journal = journal
        self._clock = clock
        self._moves: dict[JobId, Move] = {}

    def all(self) -> Sequence[Move]:
        return list(self._moves.values())

    async def load(self) -> None:
        """Read the journal. Retries until the journal is readable."""
        while True:
            try:
                found = await self._journal.load()
            except (UnavailableError, OSError) as error:
                log.warning("move journal unreadable, retrying", error=str(error))
                await asyncio.sleep(LOAD_RETRY_S)
            else:
                for move in found:
                    self._moves.setdefault(move.job_id, move)
                return

    async def put(self, *moves: Move) -> None:
        await self._journal.save(*moves)
        self._moves |= {move.job_id: move for move in moves}

    async def forget(self, job_id: JobId) -> None:
        await self._journal.forget(job_id)
        self._moves.pop(job_id, None)

    def describe(self, job: Job) -> str:
        """Where a queued job will move, and when; empty without a planned move."""
        move = self._moves.get(job.id)
        if move is None or not is_movable(job):
            return ""
        if move.step != WAITS:
            return f"is being moved to {move.target.to}"
        left_s = max(0.0, move.due_s - self._clock())
        left = f"{left_s / 60:.0f} min" if left_s >= 90 else f"{left_s:.0f} s"
        return f"moves to {move.target.to} in {left} unless it starts before"


def is_movable(job: Job) -> bool:
    """Only a job that has never started may move."""
    return job.attempt == 0 and job.state in (JobState.QUEUED, JobState.HELD)
