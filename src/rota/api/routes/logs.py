"""Output of jobs, as bytes or as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from rota.api.auth import CallerDep
from rota.api.responses import ERRORS, NameOrId, ServicesDep
from rota.api.router import LazyRouter
from rota.api.streams import EVENT_STREAM, byte_stream, event_stream, server_sent_event
from rota.daemon.jobs.job_logs import JobLogChunk
from rota.thread_pools import JOB_FILES
from rota.wire.jobs import LogPiece, LogRange

router = LazyRouter(prefix="/v1", tags=["logs"], responses=ERRORS)

LogPosition = Annotated[str, Field(pattern=r"^[0-9]{1,7}:[0-9]{1,6}:[0-9.-]{1,60}$")]


class LogQueryParams(BaseModel):
    """Which output to read. Default: the newest attempt of all workers."""

    worker: int | None = Field(None, ge=0, le=100_000)
    attempt: int | None = Field(None, ge=1, le=1_000_000)
    tail: int | None = Field(None, ge=0, le=1_000_000)
    since_s: float = Field(0.0, ge=0, le=1e12)
    follow: bool = False
    exact: bool = False
    after: list[LogPosition] = Field([], max_length=1000)


@router.get(
    "/jobs/{word}/logs", summary="Read the output of a job", response_class=StreamingResponse
)
async def logs(
    word: NameOrId,
    wanted: Annotated[LogQueryParams, Query()],
    *,
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
) -> Response:
    """Plain bytes; with `Accept: text/event-stream`, events with timestamps."""
    log_range = LogRange(**wanted.model_dump())
    log = await JOB_FILES.run(services.log_reader.open, caller, word, wanted=log_range)
    found = log.pieces()
    if EVENT_STREAM in request.headers.get("accept", ""):
        events = _log_events(found, "latin-1" if wanted.exact else "utf-8")
        return event_stream(events, services=services, caller=caller)
    return byte_stream(_log_bytes(found), services=services, caller=caller)


async def _log_events(found: AsyncGenerator[JobLogChunk], encoding: str) -> AsyncGenerator[str]:
    async with aclosing(found) as pieces:
        async for piece in pieces:
            text = piece.output.decode(encoding, errors="replace")
            message = LogPiece(piece.at_s, piece.attempt, piece.worker, text, piece.mark)
            yield server_sent_event("log", message)


async def _log_bytes(found: AsyncGenerator[JobLogChunk]) -> AsyncGenerator[bytes]:
    async with aclosing(found) as pieces:
        async for piece in pieces:
            if piece.output:
                yield piece.output
