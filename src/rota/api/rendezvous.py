"""Where the agents of torchrun meet. Each of these holds its answer for up to 30 seconds."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from rota.api.answers import ERRORS, Reaches, answer
from rota.api.auth import Asks
from rota.api.strict import StrictRoute
from rota_trainer.meetings import (
    ARRIVE,
    STORE,
    WATCH,
    Arrival,
    Exchange,
    Found,
    News,
    Seat,
    Watching,
)

router = APIRouter(tags=["training"], responses=ERRORS, route_class=StrictRoute)


@router.post(ARRIVE, response_model=Seat, summary="An agent is at the barrier")
async def arrive(body: Arrival, *, house: Reaches, caller: Asks) -> Response:
    """With the token of the job's attempt only. The answer comes when all members of the newest
    generation are there, or after `wait_s`; then the agent arrives again."""
    return answer(await house.rendezvous.arrive(caller, body))


@router.post(WATCH, response_model=News, summary="An agent asks whether it has to come again")
async def watch(body: Watching, *, house: Reaches, caller: Asks) -> Response:
    """With the token of the job's attempt only. The answer comes when it has, or after `wait_s`."""
    return answer(await house.rendezvous.watch(caller, body))


@router.post(STORE, response_model=Found, summary="Keys and values that the agents share")
async def exchange(body: Exchange, *, house: Reaches, caller: Asks) -> Response:
    """With the token of the job's attempt only. A request that needs a key that is not there is
    answered when it is, or after `wait_s`."""
    return answer(await house.rendezvous.exchange(caller, body))
