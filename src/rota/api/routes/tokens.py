"""Tokens: list, create, revoke; and the identity of the caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Path
from starlette.responses import Response

from rota.api.auth import CallerDep
from rota.api.responses import ERRORS, ServicesDep, json_response
from rota.api.router import LazyRouter
from rota.api.strict_json import StrictRoute
from rota.store.records import TokenScope
from rota.wire.daemon import TokenView

router = LazyRouter(prefix="/v1", tags=["tokens"], responses=ERRORS, route_class=StrictRoute)


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """`user` empty: the caller. `days` None: valid until it is revoked."""

    user: str = ""
    scope: TokenScope = TokenScope.USER
    days: float | None = None


@dataclass(frozen=True, slots=True)
class Me:
    user: str
    is_admin: bool
    reach: str


@router.get("/me", response_model=Me, summary="Identity of the caller")
async def me(caller: CallerDep) -> Response:
    return json_response(Me(caller.user, caller.is_admin, caller.scope.value))


@router.get("/tokens", response_model=list[TokenView], summary="List tokens, without their secrets")
async def list_tokens(services: ServicesDep, caller: CallerDep) -> Response:
    return json_response(services.tokens.list(caller))


@router.post("/tokens", status_code=201, response_model=TokenView, summary="Create a token")
async def create_token(body: TokenRequest, *, services: ServicesDep, caller: CallerDep) -> Response:
    made = await services.tokens.create(caller, user=body.user, scope=body.scope, days=body.days)
    return json_response(made, status=201)


@router.post("/tokens/{token_id}/revoke", response_model=TokenView, summary="Revoke a token")
async def revoke_token(
    token_id: Annotated[str, Path(pattern="^[0-9A-Za-z]{1,80}$")],
    *,
    services: ServicesDep,
    caller: CallerDep,
) -> Response:
    return json_response(await services.tokens.revoke(caller, token_id))
