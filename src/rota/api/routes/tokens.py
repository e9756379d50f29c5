"""Tokens, and who one is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from rota.api.answers import ERRORS, Reaches, answer
from rota.api.auth import Asks
from rota.api.strict import StrictRoute
from rota.store.records import Scope
from rota.wire.box import TokenView

router = APIRouter(prefix="/v1", tags=["people"], responses=ERRORS, route_class=StrictRoute)


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """`user` empty: oneself. `days` None: until it is revoked."""

    user: str = ""
    scope: Scope = Scope.USER
    days: float | None = None


@dataclass(frozen=True, slots=True)
class Me:
    user: str
    is_admin: bool
    reach: str


@router.get("/me", response_model=Me, summary="Who the daemon thinks you are")
async def me(caller: Asks) -> Response:
    return answer(Me(caller.user, caller.is_admin, caller.reach.value))


@router.get("/tokens", response_model=list[TokenView], summary="Tokens, without their secrets")
async def list_tokens(house: Reaches, caller: Asks) -> Response:
    return answer(house.tokens.list(caller))


@router.post("/tokens", status_code=201, response_model=TokenView, summary="Make a token")
async def create_token(body: TokenRequest, *, house: Reaches, caller: Asks) -> Response:
    made = await house.tokens.create(caller, user=body.user, scope=body.scope, days=body.days)
    return answer(made, status=201)


@router.post("/tokens/{token_id}/revoke", response_model=TokenView, summary="End a token")
async def revoke_token(
    token_id: Annotated[str, Path(pattern="^[0-9a-f]{1,16}$")], *, house: Reaches, caller: Asks
) -> Response:
    return answer(await house.tokens.revoke(caller, token_id))
