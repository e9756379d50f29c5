"""Status, health, policy and shutdown of the daemon."""

from __future__ import annotations

from dataclasses import dataclass, replace

from starlette.responses import Response

from rota.api.auth import CallerDep
from rota.api.limit_use import limit_uses
from rota.api.responses import ERRORS, ServicesDep, json_response
from rota.api.router import LazyRouter
from rota.api.strict_json import StrictRoute
from rota.wire.daemon import SettingView, Status

router = LazyRouter(tags=["daemon"], responses=ERRORS, route_class=StrictRoute)


@dataclass(frozen=True, slots=True)
class HealthStatus:
    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Chosen:
    policy: str


@router.get("/healthz", response_model=HealthStatus, summary="Liveness of the daemon")
async def healthz(services: ServicesDep) -> Response:
    """503 if the daemon needs a restart. `degraded` if it works, but no scheduling round ends, or
    calls of one kind hang."""
    if services.cluster_service.is_broken:
        return json_response(HealthStatus("broken", services.cluster_service.trouble), status=503)
    if reason := services.cluster_service.degraded:
        return json_response(HealthStatus("degraded", reason))
    return json_response(HealthStatus("ok"))


@router.get("/readyz", response_model=HealthStatus, summary="Readiness of the daemon")
async def readyz(services: ServicesDep) -> Response:
    """503 while the daemon accepts no work."""
    trouble = services.cluster_service.trouble
    if trouble:
        return json_response(HealthStatus("not ready", trouble), status=503)
    return json_response(HealthStatus("ok"))


@router.get("/v1/status", response_model=Status, summary="Status of the daemon")
async def status(services: ServicesDep, caller: CallerDep) -> Response:
    found = services.cluster_service.status()
    return json_response(replace(found, limits=await limit_uses(services, caller)))


@router.get(
    "/v1/settings", response_model=list[SettingView], summary="Settings that the daemon uses"
)
async def settings(services: ServicesDep, caller: CallerDep) -> Response:
    """Only administrators see the values of variables for jobs."""
    return json_response(services.cluster_service.settings(caller))


@router.get("/v1/policy", response_model=Chosen, summary="Current scheduling policy")
async def policy(services: ServicesDep, _: CallerDep) -> Response:
    return json_response(Chosen(services.cluster_service.policy))


@router.put("/v1/policy", response_model=Chosen, summary="Set the scheduling policy")
async def set_policy(body: Chosen, *, services: ServicesDep, caller: CallerDep) -> Response:
    await services.cluster_service.set_policy(caller, body.policy)
    return json_response(Chosen(services.cluster_service.policy))


@router.post("/v1/stop", status_code=202, response_model=HealthStatus, summary="Stop the daemon")
async def stop(services: ServicesDep, caller: CallerDep, *, stop_jobs: bool = False) -> Response:
    """With `stop_jobs`, running jobs go back to the queue first."""
    services.cluster_service.stop(caller, stop_jobs=stop_jobs)
    return json_response(HealthStatus("stopping"), status=202)
