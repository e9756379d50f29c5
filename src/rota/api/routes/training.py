"""Reports of training programs: one a second from each worker, so it costs as little as it can."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rota.api.answers import ERRORS, Reaches, answer
from rota.api.auth import Asks
from rota.api.strict import each_once
from rota.errors import UserError, why_not_json
from rota_trainer.messages import PATH, Orders, Report

REPORT_BYTES_MAX = 256 * 1024
"""Many times as much as `rota_trainer` ever sends; reading it takes a few milliseconds."""

LARGE = f"the report is larger than {REPORT_BYTES_MAX // 1024} KiB"


class TooLargeError(UserError):
    code = "too_large"


class ReportRoute(APIRoute):
    """Described like any other route, and answered by hand: a report is looked through field by
    field, because what makes no sense in it is left out instead of refused."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def handle(request: Request) -> Response:
            body = await request.body()
            if len(body) > REPORT_BYTES_MAX:
                raise TooLargeError(LARGE, "send less at once")
            try:
                raw = json.loads(body.decode(), object_pairs_hook=each_once)
            except (ValueError, RecursionError) as error:
                raise HTTPException(400, why_not_json(error)) from None
            return await self.endpoint(
                raw, house=request.app.state.house, caller=request.state.caller
            )

        return handle


router = APIRouter(tags=["training"], responses=ERRORS, route_class=ReportRoute)


@router.post(PATH, response_model=Orders, summary="A worker tells how its training goes")
async def report(body: Report, *, house: Reaches, caller: Asks) -> Response:
    """With the token of the job's attempt only. Fields that are not known are ignored, and values
    that make no sense left out. The answer comes when there is an order for the worker, or after
    `wait_s`, up to 30 seconds."""
    return answer(await house.training.report(caller, body))
