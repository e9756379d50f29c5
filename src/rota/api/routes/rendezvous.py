"""The rendezvous of torchrun agents. Each route may hold its answer for up to 30 seconds."""

from __future__ import annotations

from starlette.responses import Response

from rota.api.auth import CallerDep
from rota.api.responses import ERRORS, ServicesDep, json_response
from rota.api.router import LazyRouter
from rota.api.strict_json import StrictRoute
from rota_trainer.torchrun.messages import (
    ARRIVE,
    STORE,
    WATCH,
    ArriveRequest,
    RendezvousAssignment,
    StoreRequest,
    StoreResponse,
    WatchRequest,
    WatchResponse,
)

router = LazyRouter(tags=["training"], responses=ERRORS, route_class=StrictRoute)


@router.post(ARRIVE, response_model=RendezvousAssignment, summary="Arrive at the barrier")
async def arrive(body: ArriveRequest, *, services: ServicesDep, caller: CallerDep) -> Response:
    """Needs the token of the job's attempt. The answer comes when all members of the newest
    generation have arrived, or after `wait_s`; then the agent arrives again."""
    return json_response(await services.rendezvous.arrive(caller, body))


@router.post(WATCH, response_model=WatchResponse, summary="Wait until the agent must rejoin")
async def watch(body: WatchRequest, *, services: ServicesDep, caller: CallerDep) -> Response:
    """Needs the token of the job's attempt. The answer comes when the agent must rejoin, or after
    `wait_s`."""
    return json_response(await services.rendezvous.watch(caller, body))


@router.post(STORE, response_model=StoreResponse, summary="Key-value store of the agents")
async def exchange(body: StoreRequest, *, services: ServicesDep, caller: CallerDep) -> Response:
    """Needs the token of the job's attempt. A request for a missing key is answered when the key is
    set, or after `wait_s`."""
    return json_response(await services.rendezvous.exchange(caller, body))
