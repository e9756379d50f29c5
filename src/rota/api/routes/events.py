"""State changes of jobs, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response, StreamingResponse

from rota.api.auth import CallerDep
from rota.api.responses import ERRORS, EVENT_STREAM, ServicesDep, limited_stream, server_sent_event
from rota.core.model.job import JobId
from rota.daemon.access.authorization import Caller, job_scope

if TYPE_CHECKING:
    from rota.api.app import Services

router = APIRouter(prefix="/v1", tags=["events"], responses=ERRORS)
MIN_POLL_INTERVAL_S = 0.05
"""Shortest pause between two reads of the history."""
HEARTBEAT_S = 15.0
MAX_NUMBER = 2**53


@router.get("/events", summary="Watch state changes", response_class=StreamingResponse)
async def events(
    services: ServicesDep,
    caller: CallerDep,
    *,
    job: Annotated[str, Query(max_length=80)] = "",
    after: Annotated[int | None, Query(ge=0, le=MAX_NUMBER)] = None,
    last_event_id: Annotated[int | None, Header(ge=0, le=MAX_NUMBER)] = None,
) -> Response:
    """Without `after`, the stream starts now. With a `job`, it ends when the job is over."""
    job_id = job_scope(caller)
    if job:
        job_id = services.directory.find(caller, job).id
    start = after if last_event_id is None else last_event_id
    if start is None:
        start = services.history.newest_number()
    found = _events(services, caller, job_id=job_id, after=start)
    return StreamingResponse(
        limited_stream(found, services=services, caller=caller), media_type=EVENT_STREAM
    )


async def _events(
    services: Services, caller: Caller, *, job_id: JobId | None, after: int
) -> AsyncIterator[str]:
    while True:
        change = asyncio.ensure_future(services.directory.changed())
        entries = services.history.entries(caller, job_id, after=after, limit=1000)
        for entry in entries:
            after = entry.number
            yield server_sent_event("state", entry, number=entry.number)
        if job_id is not None and not entries and services.directory.is_over(job_id):
            change.cancel()
            return
        if entries:
            change.cancel()
            continue
        done, _ = await asyncio.wait({change}, timeout=HEARTBEAT_S)
        if not done:
            change.cancel()
            yield ": still here\n\n"
        await asyncio.sleep(MIN_POLL_INTERVAL_S)
