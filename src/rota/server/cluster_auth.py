"""Authenticates users of a cluster by their Kubernetes tokens."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Protocol

from rota.daemon.access.accounts import local_uid
from rota.daemon.access.authorization import Caller, caller_of_groups, may_run_as
from rota.daemon.errors import ForbiddenError
from rota.errors import shown


class ReviewedUser(Protocol):
    """A user of the cluster. `name` is the user name in rota."""

    @property
    def name(self) -> str: ...
    @property
    def username(self) -> str: ...
    @property
    def groups(self) -> frozenset[str]: ...


class TokenReviewClient(Protocol):
    async def authenticate(self, token: str) -> ReviewedUser | None: ...


@dataclass(frozen=True, slots=True)
class TokenReviewAuthenticator:
    """Satisfies `rota.api.auth.ExternalAuthenticator`. `users` are the groups that may use the
    daemon (empty: all users of the cluster); `admins` are the groups of administrators."""

    reviews: TokenReviewClient
    users: frozenset[str] = frozenset()
    admins: frozenset[str] = frozenset()

    async def caller(self, secret: str) -> Caller | None:
        person = await self.reviews.authenticate(secret)
        if person is None:
            return None
        caller = caller_of_groups(
            person.name, person.groups, user_groups=self.users, admin_groups=self.admins
        )
        if caller is None:
            raise ForbiddenError(
                f"{shown(person.username)} is in none of the groups that may use this daemon",
                "ask an administrator; the setting user_groups lists the groups",
            )
        uid = local_uid(person.name)
        is_allowed = may_run_as(uid, daemon_uid=os.geteuid())
        return replace(caller, uid=uid if is_allowed else None)
