"""People whom a cluster knows, as callers of ours."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from typing import Protocol

from rota.daemon.people import Caller, ForbiddenError
from rota.errors import shown


class Known(Protocol):
    """Somebody as a cluster knows them: `name` is what we call them."""

    @property
    def name(self) -> str: ...
    @property
    def username(self) -> str: ...
    @property
    def groups(self) -> frozenset[str]: ...


class Reviews(Protocol):
    async def person(self, token: str) -> Known | None: ...


@dataclass(frozen=True, slots=True)
class ClusterPeople:
    """Satisfies `rota.api.auth.Strangers`. `users` are the groups that may come in, none: all whom
    the cluster knows; `admins` are those of administrators."""

    reviews: Reviews
    users: frozenset[str] = frozenset()
    admins: frozenset[str] = frozenset()

    async def caller(self, secret: str) -> Caller | None:
        person = await self.reviews.person(secret)
        if person is None:
            return None
        is_admin = bool(self.admins & person.groups)
        if self.users and not self.users & person.groups and not is_admin:
            raise ForbiddenError(
                f"{shown(person.username)} is in none of the groups that may use this daemon",
                "ask an administrator; the setting user_groups names them",
            )
        return Caller(person.name, _uid(person.name), is_admin=is_admin)


def _uid(name: str) -> int | None:
    """Of the account of this name, for a daemon of root; nobody becomes root by a name."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(name).pw_uid or None
    except KeyError:
        return None
