"""Reports of training programs. Each worker reports once a second, so a report must be cheap."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rota.api.auth import CallerDep
from rota.api.responses import ERRORS, ServicesDep, json_response
from rota.api.router import LazyRouter
from rota.api.strict_json import SMALL_BYTES, reject_duplicates
from rota.errors import UserError, json_error_message
from rota.thread_pools import REQUESTS
from rota_trainer.reporting.messages import PATH, Orders, TrainingReport

REPORT_BYTES_MAX = 256 * 1024
"""Much more than `rota_trainer` sends; parsing takes a few milliseconds."""

LARGE = f"the report is larger than {REPORT_BYTES_MAX // 1024} KiB"


class TooLargeError(UserError):
    code = "too_large"


class ReportRoute(APIRoute):
    """Skips FastAPI's validation: the report parser checks each field itself, and ignores invalid
    values instead of rejecting the report."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def handle(request: Request) -> Response:
            body = await request.body()
            if len(body) > REPORT_BYTES_MAX:
                raise TooLargeError(LARGE, "send fewer values in one report")
            if len(body) > SMALL_BYTES:
                raw = await REQUESTS.run(_decode, body)
            else:
                raw = _decode(body)
            return await self.endpoint(
                raw, services=request.app.state.services, caller=request.state.caller
            )

        return handle


def _decode(body: bytes) -> Any:
    try:
        return json.loads(body.decode(), object_pairs_hook=reject_duplicates)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, json_error_message(error)) from None


router = LazyRouter(tags=["training"], responses=ERRORS, route_class=ReportRoute)


@router.post(PATH, response_model=Orders, summary="Report the progress of a worker")
async def report(body: TrainingReport, *, services: ServicesDep, caller: CallerDep) -> Response:
    """Needs the token of the job's attempt. Unknown fields and invalid values are ignored. The
    answer comes when there is an order for the worker, or after `wait_s`, at most 30 seconds."""
    return json_response(await services.report_service.report(caller, body))
