"""Finds the caller of a request: by a token, or by the peer's user id on a Unix socket.

On a cluster, a token that is not a token of rota may be a token of the cluster.
"""

from __future__ import annotations

import os
from typing import Annotated, Protocol

from fastapi import Depends
from starlette.requests import HTTPConnection

from rota.api.peer import Peer
from rota.daemon.access.accounts import account_of_uid
from rota.daemon.access.authorization import Caller, caller_of_uid
from rota.daemon.access.tokens import JOB_PREFIX, PREFIX, Tokens
from rota.errors import UserError


class UnauthorizedError(UserError):
    code = "unauthorized"


class ExternalAuthenticator(Protocol):
    """Authenticates tokens that are not tokens of rota."""

    async def caller(self, secret: str) -> Caller | None: ...


class Authenticator:
    """Authenticates tokens and user ids."""

    def __init__(
        self,
        tokens: Tokens,
        *,
        admins: frozenset[str] = frozenset(),
        external_auth: ExternalAuthenticator | None = None,
    ) -> None:
        self._tokens = tokens
        self._admins = admins
        self._external_auth = external_auth
        self._own_uid = os.geteuid()

    async def identify(self, connection: HTTPConnection) -> Caller:
        header = connection.headers.get("authorization", "")
        kind, _, secret = header.partition(" ")
        if header and kind.lower() != "bearer":
            raise UnauthorizedError(
                "the Authorization header has no bearer token", "send 'Authorization: Bearer TOKEN'"
            )
        if secret:
            caller = await self._by_token(secret.strip())
            if caller is None:
                raise UnauthorizedError("unknown, expired or revoked token", "create a new token")
            return caller
        peer: Peer | None = getattr(connection.state, "peer", None)
        if peer is None:
            raise UnauthorizedError(
                "authentication required",
                "create a token with 'rota token create' and set ROTA_TOKEN",
            )
        if peer.is_contained:
            raise UnauthorizedError(
                "this process is in a container or another user namespace, where its uid proves"
                " nothing",
                "create a token outside with 'rota token create' and set ROTA_TOKEN",
            )
        return self._by_uid(peer.uid)

    async def _by_token(self, secret: str) -> Caller | None:
        """Tokens of rota never go to the external authenticator, not even invalid ones."""
        if self._external_auth is None or secret.startswith((PREFIX, JOB_PREFIX)):
            return self._tokens.caller(secret)
        return await self._external_auth.caller(secret)

    def _by_uid(self, uid: int) -> Caller:
        name, owner = account_of_uid(uid)
        caller = caller_of_uid(name, owner, daemon_uid=self._own_uid, admins=self._admins)
        if caller is None:
            raise UnauthorizedError(
                "this daemon belongs to another user", "start your own daemon with 'rota up'"
            )
        return caller


async def _caller(connection: HTTPConnection) -> Caller:
    """The middleware has already authenticated requests with a body."""
    known: Caller | None = getattr(connection.state, "caller", None)
    if known is not None:
        return known
    return await connection.app.state.authenticator.identify(connection)


CallerDep = Annotated[Caller, Depends(_caller)]
