"""Who is asking: the kernel's word on a Unix socket, a token everywhere. On a cluster, a token that
is not ours may be one of the cluster's."""

from __future__ import annotations

import os
import pwd
from functools import lru_cache
from typing import Annotated, Protocol

from fastapi import Depends
from starlette.requests import HTTPConnection

from rota.api.server import Peer
from rota.daemon.people import Caller
from rota.daemon.tokens import JOB_PREFIX, PREFIX, Tokens
from rota.errors import UserError

ADMIN_UID = 0


class UnauthorizedError(UserError):
    code = "unauthorized"


class Strangers(Protocol):
    """Knows whose tokens those are that are not ours."""

    async def caller(self, secret: str) -> Caller | None: ...


class Doorkeeper:
    """Knows tokens, and which user ids may come in."""

    def __init__(
        self,
        tokens: Tokens,
        *,
        admins: frozenset[str] = frozenset(),
        strangers: Strangers | None = None,
    ) -> None:
        self._tokens = tokens
        self._admins = admins
        self._strangers = strangers
        self._own_uid = os.geteuid()

    async def identify(self, connection: HTTPConnection) -> Caller:
        header = connection.headers.get("authorization", "")
        kind, _, secret = header.partition(" ")
        if header and kind.lower() != "bearer":
            raise UnauthorizedError("that is no bearer token", "send 'Authorization: Bearer TOKEN'")
        if secret:
            caller = await self._by_token(secret.strip())
            if caller is None:
                raise UnauthorizedError("unknown, expired or revoked token", "ask for a new one")
            return caller
        peer: Peer | None = getattr(connection.state, "peer", None)
        if peer is None:
            raise UnauthorizedError(
                "a token is needed", "make one with 'rota token create' and set ROTA_TOKEN"
            )
        return self._by_uid(peer.uid)

    async def _by_token(self, secret: str) -> Caller | None:
        """Ours are nobody else's business, whether or not they are still good."""
        if self._strangers is None or secret.startswith((PREFIX, JOB_PREFIX)):
            return self._tokens.caller(secret)
        return await self._strangers.caller(secret)

    def _by_uid(self, uid: int) -> Caller:
        if self._own_uid != ADMIN_UID and uid not in (self._own_uid, ADMIN_UID):
            raise UnauthorizedError(
                "this daemon belongs to another user", "start your own with 'rota up'"
            )
        user = _name_of(uid)
        is_admin = uid in (ADMIN_UID, self._own_uid) or user in self._admins
        return Caller(user, uid, is_admin=is_admin)


def _name_of(uid: int) -> str:
    """That a name is not known is not remembered: perhaps whoever knows it does not answer now."""
    try:
        return _known_name(uid)
    except KeyError:
        return str(uid)


@lru_cache(maxsize=1024)
def _known_name(uid: int) -> str:
    """Looked up once: some machines ask a server for it."""
    return pwd.getpwuid(uid).pw_name


async def _caller(connection: HTTPConnection) -> Caller:
    """Whoever sends a body has been asked already."""
    known: Caller | None = getattr(connection.state, "caller", None)
    if known is not None:
        return known
    return await connection.app.state.doorkeeper.identify(connection)


Asks = Annotated[Caller, Depends(_caller)]
