"""Jobs that have run, for `rota history export`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from rota.api.auth import CallerDep
from rota.api.responses import ERRORS, ServicesDep, json_response
from rota.api.router import LazyRouter
from rota.thread_pools import STORE
from rota.wire.history import HistoryPage

router = LazyRouter(prefix="/v1", tags=["jobs"], responses=ERRORS)
MAX_PAGE = 1000
MAX_NUMBER = 2**53


@router.get("/history", response_model=HistoryPage, summary="Jobs that have run")
async def history(
    services: ServicesDep,
    caller: CallerDep,
    *,
    since_s: Annotated[float, Query(ge=0, le=MAX_NUMBER)] = 0.0,
    before: Annotated[int | None, Query(ge=0, le=MAX_NUMBER)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = MAX_PAGE,
) -> Response:
    """The caller's jobs, for administrators those of all users, submitted after `since_s`."""
    page = await STORE.run(
        services.history.jobs, caller, since_s=since_s, before=before, limit=limit
    )
    return json_response(page)
