"""Tokens: secrets that authenticate a user, a read-only user, or one attempt of a job.

The store keeps only the hash of a user's token. The token of a job is not stored: it is a keyed
hash of the job id and the attempt, and it is valid only while that attempt is active.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import re
import secrets
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from rota.config.limits import DEFAULT_LIMITS
from rota.core.model.job import JobId
from rota.daemon.access.accounts import local_uid
from rota.daemon.access.authorization import (
    AccessScope,
    Caller,
    may_manage_tokens,
    may_run_as,
    require_person,
    require_run_as,
    require_token_creator,
    require_write,
)
from rota.daemon.errors import LimitError, NotFoundError, RefusedError
from rota.daemon.runtime.controller import Controller
from rota.errors import UserError, shown
from rota.store.interface import Store
from rota.store.records import Token, TokenScope
from rota.wire.daemon import TokenView

KEY_NAME = "job-tokens.key"
PREFIX = "rota_"
JOB_PREFIX = "rotajob_"
MAX_DAYS = 3650
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,79}", re.ASCII)


class Tokens:
    def __init__(
        self,
        controller: Controller,
        store: Store,
        *,
        key: bytes,
        clock: Callable[[], float],
        most: int = DEFAULT_LIMITS.max_tokens,
    ) -> None:
        """`most`: the valid tokens of one user."""
        self._most = most
        self._controller = controller
        self._key = key
        self._clock = clock
        self._by_hash = {token.sha256: token for token in store.rows(Token)}

    def caller(self, secret: str) -> Caller | None:
        """The caller whom a token authenticates; None: the token is not valid."""
        if secret.startswith(JOB_PREFIX):
            return self._job(secret)
        token = self._by_hash.get(_hash(secret))
        if token is None or not self._is_live(token):
            return None
        uid = local_uid(token.user)
        if token.scope is not TokenScope.USER:
            return Caller(token.user, uid, scope=AccessScope.READ_ONLY)
        # Checked at every use of a token, not only at its creation: accounts change.
        is_allowed = may_run_as(uid, daemon_uid=os.geteuid())
        return Caller(token.user, uid) if is_allowed else None

    def for_attempt(self, job_id: JobId, attempt: int) -> str:
        return f"{JOB_PREFIX}{job_id}_{attempt}_{self._sign(job_id, attempt)}"

    async def create(
        self, caller: Caller, *, user: str, scope: TokenScope, days: float | None
    ) -> TokenView:
        user = user or caller.user
        require_token_creator(caller, user)
        if user != caller.user:
            _require_name(user)
        if scope is TokenScope.JOB:
            raise UserError(
                "a job gets its token when it starts", "use scope 'user' or 'read_only'"
            )
        if days is not None and not 0 < days <= MAX_DAYS:
            raise RefusedError("days", f"{days:g} is out of bounds", f"use 0 to {MAX_DAYS}")
        if scope is TokenScope.USER:
            require_run_as(user, local_uid(user), daemon_uid=os.geteuid())
        if self.n_valid(user) >= self._most:
            what = f"{user} has {self._most} valid tokens"
            raise LimitError(what, "revoke some of them", setting="max_tokens")
        secret = PREFIX + secrets.token_urlsafe(32)
        now = self._clock()
        token = Token(
            id=secrets.token_hex(8),
            sha256=_hash(secret),
            user=user,
            scope=scope,
            created_s=now,
            expires_s=None if days is None else now + days * 86400,
        )
        await self._controller.durable(self._controller.put(token))
        self._by_hash[token.sha256] = token
        return _view(token, secret)

    def n_valid(self, user: str) -> int:
        """The number of tokens of a user that are valid now."""
        mine = (each for each in self._by_hash.values() if each.user == user)
        return sum(map(self._is_live, mine))

    def list(self, caller: Caller) -> list[TokenView]:
        require_person(caller)
        found = [each for each in self._by_hash.values() if may_manage_tokens(caller, each.user)]
        return [_view(token) for token in sorted(found, key=lambda token: token.created_s)]

    async def revoke(self, caller: Caller, token_id: str) -> TokenView:
        require_write(caller)
        for token in self._by_hash.values():
            if token.id == token_id and may_manage_tokens(caller, token.user):
                break
        else:
            what = f"you have no token {token_id[:40]!r}"
            raise NotFoundError(what, "'rota token list' shows your tokens")
        gone = replace(token, revoked_s=self._clock())
        await self._controller.durable(self._controller.put(gone))
        self._by_hash[gone.sha256] = gone
        return _view(gone)

    def ended_before(self, before_s: float) -> list[str]:
        """The ids of tokens that expired or were revoked before this time."""
        return [each.id for each in self._by_hash.values() if _ended_s(each) < before_s]

    def forget(self, token_ids: Collection[str]) -> None:
        """Forget tokens that the store has deleted."""
        kept = {sha256: each for sha256, each in self._by_hash.items() if each.id not in token_ids}
        self._by_hash = kept

    def _is_live(self, token: Token) -> bool:
        is_expired = token.expires_s is not None and token.expires_s <= self._clock()
        return token.revoked_s is None and not is_expired

    def _job(self, secret: str) -> Caller | None:
        job_id, _, rest = secret.removeprefix(JOB_PREFIX).partition("_")
        attempt, _, signature = rest.partition("_")
        job = self._controller.job(JobId(job_id))
        if job is None or not job.is_active or attempt != str(job.attempt):
            return None
        if not hmac.compare_digest(signature.encode(), self._sign(job.id, job.attempt).encode()):
            return None
        return Caller(job.spec.user, scope=AccessScope.JOB, job_id=job.id)

    def _sign(self, job_id: JobId, attempt: int) -> str:
        return hmac.new(self._key, f"{job_id}/{attempt}".encode(), hashlib.sha256).hexdigest()


def load_key(folder: Path) -> bytes:
    """The key of this state folder. The first call creates the key."""
    path = folder / KEY_NAME
    if not path.exists():
        partial = path.with_suffix(".partial")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(32))
            file.flush()
            os.fsync(descriptor)
        partial.rename(path)
    return path.read_bytes()


def _ended_s(token: Token) -> float:
    """When the token expires or was revoked, whichever is first; infinite if it never ends."""
    ends = [each for each in (token.expires_s, token.revoked_s) if each is not None]
    return min(ends, default=math.inf)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _require_name(user: str) -> None:
    """The name may become part of a path."""
    if not _NAME.fullmatch(user):
        raise RefusedError(
            "user", f"{shown(user)!r} is not a valid user name", "use letters and digits"
        )


def _view(token: Token, secret: str = "") -> TokenView:
    return TokenView(
        token.id,
        token.user,
        token.scope.value,
        token.created_s,
        token.expires_s,
        token.revoked_s,
        secret,
    )
