"""What is watched rather than fetched: state changes and logs, as server-sent events."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, TypeVar

from fastapi import APIRouter, Header, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from rota.api.answers import ERRORS, Reaches, Word
from rota.api.auth import Asks
from rota.core.model import Ended, JobId
from rota.daemon.desk import Desk
from rota.daemon.logs import JobLogs, Piece
from rota.daemon.people import Caller, Reach, require_owner
from rota.errors import UserError
from rota.wire.jobs import LogPiece, LogRange, StoryEntry
from rota.wire.json import dump

if TYPE_CHECKING:
    from rota.api.app import House

T = TypeVar("T")
router = APIRouter(prefix="/v1", tags=["streams"], responses=ERRORS)

STREAMS_MAX = 200
"""Of one user at a time."""
BREATH_S = 0.05
"""Between two looks at the story, however much happens."""
HEARTBEAT_S = 15.0
BIGGEST = 2**53
EVENT_STREAM = "text/event-stream"


class TooManyError(UserError):
    code = "too_many"


@router.get("/events", summary="State changes as they happen", response_class=StreamingResponse)
async def events(
    house: Reaches,
    caller: Asks,
    *,
    job: Annotated[str, Query(max_length=80)] = "",
    after: Annotated[int | None, Query(ge=0, le=BIGGEST)] = None,
    last_event_id: Annotated[int | None, Header(ge=0, le=BIGGEST)] = None,
) -> Response:
    """Without `after`, from now on. With a `job`, the stream ends when the job is over."""
    desk = house.desk
    job_id = caller.job_id if caller.reach is Reach.JOB else None
    if job:
        job_id = desk.find(job, caller).id
    start = after if last_event_id is None else last_event_id
    if start is None:
        start = desk.store.newest_entry()
    found = _events(desk, caller, job_id=job_id, after=start)
    return StreamingResponse(_counted(found, house=house, caller=caller), media_type=EVENT_STREAM)


async def _events(
    desk: Desk, caller: Caller, *, job_id: JobId | None, after: int
) -> AsyncIterator[str]:
    while True:
        change = asyncio.ensure_future(desk.shell.changed())
        entries = desk.story(caller, job_id, after=after, limit=1000)
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


Mark = Annotated[str, Field(pattern=r"^[0-9]{1,7}:[0-9]{1,6}:[0-9.-]{1,60}$")]


class LogQuery(BaseModel):
    """Which output is wanted; the newest attempt of all workers if nothing is said."""

    worker: int | None = Field(None, ge=0, le=100_000)
    attempt: int | None = Field(None, ge=1, le=1_000_000)
    tail: int | None = Field(None, ge=0, le=1_000_000)
    since_s: float = Field(0.0, ge=0, le=1e12)
    follow: bool = False
    exact: bool = False
    after: list[Mark] = Field([], max_length=1000)


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
    log.check()
    found = log.pieces()
    if EVENT_STREAM in request.headers.get("accept", ""):
        pieces = _log_events(found, "latin-1" if wanted.exact else "utf-8")
        events = _counted(pieces, house=house, caller=caller)
        return StreamingResponse(events, media_type=EVENT_STREAM)
    output = _counted(_log_bytes(found), house=house, caller=caller)
    return StreamingResponse(output, media_type="application/octet-stream")


async def _log_events(found: AsyncIterator[Piece], encoding: str) -> AsyncIterator[str]:
    async for piece in found:
        text = piece.output.decode(encoding, errors="replace")
        told = LogPiece(piece.at_s, piece.attempt, piece.worker, text, piece.mark)
        yield _event("log", told)


async def _log_bytes(found: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    async for piece in found:
        if piece.output:
            yield piece.output


def _counted(pieces: AsyncIterator[T], *, house: House, caller: Caller) -> AsyncIterator[T]:
    """A stream lasts as long as its reader likes, and nobody may have any number of them."""
    if house.n_streams[caller.user] >= STREAMS_MAX:
        what = f"you watch {STREAMS_MAX} streams already"
        raise TooManyError(what, "end some of them")
    return _while_counted(house.n_streams, caller.user, pieces=pieces)


async def _while_counted(
    counts: Counter[str], user: str, *, pieces: AsyncIterator[T]
) -> AsyncIterator[T]:
    counts[user] += 1
    try:
        async for piece in pieces:
            yield piece
    finally:
        counts[user] -= 1


def _event(kind: str, value: StoryEntry | LogPiece, *, number: int | None = None) -> str:
    identity = "" if number is None else f"id: {number}\n"
    return f"{identity}event: {kind}\ndata: {dump(value)}\n\n"
