"""The daemon and its machine: status, health, nodes, policy."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from rota.api.answers import ERRORS, Reaches, Word, answer
from rota.api.auth import Asks
from rota.api.strict import StrictRoute
from rota.daemon.people import require_person
from rota.wire.box import NodeView, Status

router = APIRouter(tags=["box"], responses=ERRORS, route_class=StrictRoute)


@dataclass(frozen=True, slots=True)
class Health:
    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Chosen:
    policy: str


@router.get("/healthz", response_model=Health, summary="Whether the daemon has not broken down")
async def healthz(house: Reaches) -> Response:
    shell = house.desk.shell
    if shell.broken.is_set():
        return answer(Health("broken", shell.trouble), status=503)
    return answer(Health("ok"))


@router.get("/readyz", response_model=Health, summary="Whether the daemon takes work")
async def readyz(house: Reaches) -> Response:
    trouble = house.desk.shell.trouble
    if trouble:
        return answer(Health("not ready", trouble), status=503)
    return answer(Health("ok"))


@router.get("/v1/status", response_model=Status, summary="The daemon")
async def status(house: Reaches, _: Asks) -> Response:
    return answer(house.machine.status())


@router.get("/v1/nodes", response_model=list[NodeView], summary="Machines and their GPUs")
async def nodes(house: Reaches, caller: Asks) -> Response:
    require_person(caller)
    return answer(house.machine.nodes())


@router.post("/v1/nodes/{word}/drain", response_model=list[NodeView], summary="No new work there")
async def drain(word: Word, *, house: Reaches, caller: Asks) -> Response:
    await house.machine.drain(caller, word)
    return answer(house.machine.nodes())


@router.post("/v1/nodes/{word}/resume", response_model=list[NodeView], summary="Work again")
async def resume(word: Word, *, house: Reaches, caller: Asks) -> Response:
    await house.machine.resume(caller, word)
    return answer(house.machine.nodes())


@router.post("/v1/nodes/{word}/lost", response_model=list[NodeView], summary="Gone for good")
async def lost(word: Word, *, house: Reaches, caller: Asks) -> Response:
    await house.machine.lose(caller, word)
    return answer(house.machine.nodes())


@router.get("/v1/policy", response_model=Chosen, summary="Which policy decides")
async def policy(house: Reaches, _: Asks) -> Response:
    return answer(Chosen(house.machine.policy))


@router.put("/v1/policy", response_model=Chosen, summary="Let another policy decide")
async def set_policy(body: Chosen, *, house: Reaches, caller: Asks) -> Response:
    await house.machine.set_policy(caller, body.policy)
    return answer(Chosen(house.machine.policy))


@router.post("/v1/stop", status_code=202, response_model=Health, summary="End the daemon")
async def stop(house: Reaches, caller: Asks, *, stop_jobs: bool = False) -> Response:
    house.machine.stop(caller, stop_jobs=stop_jobs)
    return answer(Health("stopping"), status=202)
