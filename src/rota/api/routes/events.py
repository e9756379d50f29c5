"""State changes of jobs, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated

from fastapi import Header, Query
from starlette.responses import Response, StreamingResponse

from rota.api.auth import CallerDep
from rota.api.responses import ERRORS, ServicesDep
from rota.api.router import LazyRouter
from rota.api.streams import event_stream, server_sent_event, stream_position
from rota.core.model.job import JobId
from rota.daemon.access.authorization import Caller, job_scope
from rota.thread_pools import EVENT_STREAMS, STORE
from rota.wire.jobs import StoryEntry

if TYPE_CHECKING:
    from rota.api.app import Services

router = LazyRouter(prefix="/v1", tags=["events"], responses=ERRORS)
MIN_POLL_INTERVAL_S = 0.05
"""Shortest pause between two reads of the history."""
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
        job_id = (await services.directory.find_async(caller, job)).id
    start = after if last_event_id is None else last_event_id
    if start is None:
        start = await STORE.run(services.history.newest_number)
    found = _events(services, caller, job_id=job_id, after=start)
    return event_stream(found, services=services, caller=caller)


async def _events(
    services: Services, caller: Caller, *, job_id: JobId | None, after: int
) -> AsyncGenerator[str]:
    yield stream_position(after)
    while True:
        # Subscribe before the read: a change between read and wait would be missed.
        change = asyncio.ensure_future(services.directory.changed())
        try:
            is_over, entries = await EVENT_STREAMS.run(
                _read, services, caller, job_id=job_id, after=after
            )
            for entry in entries:
                after = entry.number
                yield server_sent_event("state", entry, number=entry.number)
            if entries:
                continue
            if is_over:
                return
            await change
        finally:
            change.cancel()
        await asyncio.sleep(MIN_POLL_INTERVAL_S)


def _read(
    services: Services, caller: Caller, *, job_id: JobId | None, after: int
) -> tuple[bool, list[StoryEntry]]:
    """Whether the job is over, and the next entries. Blocks."""
    # Checked before the read, so that the read includes the entry of the end.
    is_over = job_id is not None and services.directory.is_over(job_id)
    return is_over, services.history.entries(caller, job_id, after=after, limit=1000)
