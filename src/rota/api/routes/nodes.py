"""Nodes: list, drain, resume, mark as lost."""

from __future__ import annotations

from starlette.responses import Response

from rota.api.auth import CallerDep
from rota.api.responses import ERRORS, NameOrId, ServicesDep, json_response
from rota.api.router import LazyRouter
from rota.api.strict_json import StrictRoute
from rota.wire.daemon import NodeView

router = LazyRouter(tags=["nodes"], responses=ERRORS, route_class=StrictRoute)


@router.get("/v1/nodes", response_model=list[NodeView], summary="Nodes and their GPUs")
async def nodes(services: ServicesDep, caller: CallerDep) -> Response:
    return json_response(services.cluster_service.nodes(caller))


@router.post(
    "/v1/nodes/{word}/drain",
    response_model=list[NodeView],
    summary="Start no new workers on a node",
)
async def drain(word: NameOrId, *, services: ServicesDep, caller: CallerDep) -> Response:
    await services.cluster_service.drain(caller, word)
    return json_response(services.cluster_service.nodes(caller))


@router.post(
    "/v1/nodes/{word}/resume", response_model=list[NodeView], summary="End the drain of a node"
)
async def resume(word: NameOrId, *, services: ServicesDep, caller: CallerDep) -> Response:
    await services.cluster_service.resume(caller, word)
    return json_response(services.cluster_service.nodes(caller))


@router.post("/v1/nodes/{word}/lost", response_model=list[NodeView], summary="Mark a node as lost")
async def lost(word: NameOrId, *, services: ServicesDep, caller: CallerDep) -> Response:
    await services.cluster_service.mark_lost(caller, word)
    return json_response(services.cluster_service.nodes(caller))
