"""What is watched rather than fetched: state changes and logs, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from rota.api.answers import ERRORS, Reaches, Word
from rota.api.auth import Asks
from rota.core.model import Ended, JobId
from rota.daemon.desk import Desk
from rota.daemon.logs import JobLogs, Piece
from rota.daemon.people import Reach, require_owner
from rota.wire.jobs import LogPiece, LogRange, StoryEntry
from rota.wire.json import dump

router = APIRouter(prefix="/v1", tags=["streams"], responses=ERRORS)

BREATH_S = 0.05
"""Between two looks at the story, however much happens."""
HEARTBEAT_S = 15.0
BIGGEST = 2**53
EVENT_STREAM = "text/event-stream"


@router.get("/events", summary="State changes as they happen", response_class=StreamingResponse)
async def events(
    house: Reaches,
    caller: Asks,
    *,
    job: Annotated[str, Query(max_length=80)] = "",
    after: Annotated[int | None, Query(ge=0, le=BIGGEST)] = None,
    last_event_id: Annotated[str, Header(max_length=20)] = "",
) -> Response:
    """Without `after`, from now on. With a `job`, the stream ends when the job is over."""
    desk = house.desk
    job_id = caller.job_id if caller.reach is Reach.JOB else None
    if job:
        job_id = desk.find(job, caller).id
    start = int(last_event_id) if last_event_id.isdigit() else after
    if start is None:
        start = desk.store.newest_entry()
    return StreamingResponse(_events(desk, job_id, after=start), media_type=EVENT_STREAM)


async def _events(desk: Desk, job_id: JobId | None, *, after: int) -> AsyncIterator[str]:
    while True:
        change = asyncio.ensure_future(desk.shell.changed())
        entries = desk.story(job_id, after=after, limit=1000)
        for entry in entries:
            after = entry.number
            yield _event("state", entry, number=entry.number)
        if job_id is not None and not entries and _is_over(desk, job_id):
            change.cancel()
            return
        if entries:
            change.cancel()
            continue
        done, _ = await asyncio.wait({change}, timeout=HEARTBEAT_S)
        if not done:
            change.cancel()
            yield ": still here\n\n"
        await asyncio.sleep(BREATH_S)


def _is_over(desk: Desk, job_id: JobId) -> bool:
    if desk.shell.kernel.job(job_id) is not None:
        return False
    job = desk.store.job(job_id)
    return job is None or isinstance(job.phase, Ended)


class LogQuery(BaseModel):
    """Which output is wanted; the newest attempt of all workers if nothing is said."""

    worker: int | None = Field(None, ge=0, le=100_000)
    attempt: int | None = Field(None, ge=1, le=1_000_000)
    tail: int | None = Field(None, ge=0, le=1_000_000)
    since_s: float = Field(0.0, ge=0, le=1e12)
    follow: bool = False


@router.get("/jobs/{word}/logs", summary="What a job printed", response_class=StreamingResponse)
async def logs(
    word: Word,
    wanted: Annotated[LogQuery, Query()],
    *,
    request: Request,
    house: Reaches,
    caller: Asks,
) -> Response:
    """Plain bytes; or, for whoever accepts `text/event-stream`, pieces with their times."""
    job = house.desk.find(word, caller)
    require_owner(caller, job)
    log = JobLogs(house.desk, house.machine.engine, job.id, wanted=LogRange(**wanted.model_dump()))
    found = log.pieces()
    first = await anext(found, None)
    if EVENT_STREAM in request.headers.get("accept", ""):
        return StreamingResponse(_log_events(first, found), media_type=EVENT_STREAM)
    return StreamingResponse(_log_bytes(first, found), media_type="application/octet-stream")


async def _log_events(first: Piece | None, rest: AsyncIterator[Piece]) -> AsyncIterator[str]:
    async for piece in _chain(first, rest):
        text = piece.output.decode(errors="replace")
        yield _event("log", LogPiece(piece.at_s, piece.attempt, piece.worker, text))


async def _log_bytes(first: Piece | None, rest: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    async for piece in _chain(first, rest):
        yield piece.output


async def _chain(first: Piece | None, rest: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
    """The first piece was fetched before the answer began, so that an error is an answer."""
    if first is not None:
        yield first
    async for piece in rest:
        yield piece


def _event(kind: str, value: StoryEntry | LogPiece, *, number: int | None = None) -> str:
    identity = "" if number is None else f"id: {number}\n"
    return f"{identity}event: {kind}\ndata: {dump(value)}\n\n"
