"""Tokens: secrets that stand for a person, a reader, or one attempt of a job.

A person's token rests as its hash. A job's is not kept at all: it is a keyed hash of the job and
its attempt, and opens nothing once that attempt is over.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import pwd
import re
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rota.core.model import JobId
from rota.daemon.fields import RefusedError
from rota.daemon.people import (
    Caller,
    ForbiddenError,
    Reach,
    require_admin,
    require_person,
    require_write,
)
from rota.daemon.shell import Shell
from rota.daemon.words import NotFoundError
from rota.errors import UserError, shown
from rota.store.base import Store
from rota.store.records import Scope, Token
from rota.wire.box import TokenView

KEY_NAME = "job-tokens.key"
PREFIX = "rota_"
JOB_PREFIX = "rotajob_"
LONGEST_DAYS = 3650
MOST_TOKENS = 100
"""Of one user, that are neither revoked nor expired."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,79}", re.ASCII)


class Tokens:
    def __init__(
        self, shell: Shell, store: Store, *, key: bytes, clock: Callable[[], float]
    ) -> None:
        self._shell = shell
        self._key = key
        self._clock = clock
        self._by_hash = {token.sha256: token for token in store.rows(Token)}

    def caller(self, secret: str) -> Caller | None:
        """Whom a secret stands for, if anybody."""
        if secret.startswith(JOB_PREFIX):
            return self._job(secret)
        token = self._by_hash.get(_hash(secret))
        if token is None or not self._is_live(token):
            return None
        if token.scope is Scope.USER and not _may_run_jobs(token.user):
            return None
        reach = Reach.FULL if token.scope is Scope.USER else Reach.READ_ONLY
        return Caller(token.user, _uid_of(token.user), reach=reach)

    def for_attempt(self, job_id: JobId, attempt: int) -> str:
        return f"{JOB_PREFIX}{job_id}_{attempt}_{self._sign(job_id, attempt)}"

    async def create(
        self, caller: Caller, *, user: str, scope: Scope, days: float | None
    ) -> TokenView:
        require_write(caller)
        user = user or caller.user
        if user != caller.user:
            require_admin(caller, "make tokens for others")
            _require_name(user)
        if scope is Scope.JOB:
            raise UserError("a job gets its own token when it starts", "use 'user' or 'read_only'")
        if days is not None and not 0 < days <= LONGEST_DAYS:
            raise RefusedError("days", f"{days:g} is out of bounds", f"use 0 to {LONGEST_DAYS}")
        if scope is Scope.USER and not _may_run_jobs(user):
            raise ForbiddenError(
                f"no token may run jobs as {user}", "name an account that exists and is not root"
            )
        mine = [each for each in self._by_hash.values() if each.user == user]
        if sum(map(self._is_live, mine)) >= MOST_TOKENS:
            raise UserError(f"{user} has {MOST_TOKENS} tokens already", "revoke some of them")
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
        await self._shell.durable(self._shell.put(token))
        self._by_hash[token.sha256] = token
        return _view(token, secret)

    def list(self, caller: Caller) -> list[TokenView]:
        require_person(caller)
        mine = [t for t in self._by_hash.values() if caller.is_admin or t.user == caller.user]
        return [_view(token) for token in sorted(mine, key=lambda token: token.created_s)]

    async def revoke(self, caller: Caller, token_id: str) -> TokenView:
        require_write(caller)
        for token in self._by_hash.values():
            if token.id == token_id and (caller.is_admin or token.user == caller.user):
                break
        else:
            what = f"no token {token_id[:40]!r} of yours"
            raise NotFoundError(what, "'rota token list' shows them")
        gone = replace(token, revoked_s=self._clock())
        await self._shell.durable(self._shell.put(gone))
        self._by_hash[gone.sha256] = gone
        return _view(gone)

    def _is_live(self, token: Token) -> bool:
        is_expired = token.expires_s is not None and token.expires_s <= self._clock()
        return token.revoked_s is None and not is_expired

    def _job(self, secret: str) -> Caller | None:
        job_id, _, rest = secret.removeprefix(JOB_PREFIX).partition("_")
        attempt, _, signature = rest.partition("_")
        job = self._shell.kernel.job(JobId(job_id))
        if job is None or not job.is_active or attempt != str(job.attempt):
            return None
        if not hmac.compare_digest(signature.encode(), self._sign(job.id, job.attempt).encode()):
            return None
        return Caller(job.spec.user, reach=Reach.JOB, job_id=job.id)

    def _sign(self, job_id: JobId, attempt: int) -> str:
        return hmac.new(self._key, f"{job_id}/{attempt}".encode(), hashlib.sha256).hexdigest()


def load_key(folder: Path) -> bytes:
    """The key of this state folder, made when it is first asked for."""
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


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _uid_of(user: str) -> int | None:
    """Under an ordinary user's daemon, tokens name people and everything runs as that user."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def _may_run_jobs(user: str) -> bool:
    """Asked whenever a token is used, not only when it is made: accounts change."""
    return os.geteuid() != 0 or _uid_of(user) not in (None, 0)


def _require_name(user: str) -> None:
    """It may become part of a path."""
    if not _NAME.fullmatch(user):
        raise RefusedError("user", f"{shown(user)!r} is no user's name", "use letters and digits")


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
