"""Authenticate a bearer token of the cluster with a TokenReview, and cache the answer for a short
time.

The cache keys are hashes of tokens. The number of concurrent and waiting reviews is limited, so
that a client with many wrong tokens cannot overload the API server. Tokens that were valid before
do not wait for these: such a client does not lock out the users.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from rota.errors import UnavailableError
from rota.kube.client import KubeClient
from rota.kube.resources import TOKEN_REVIEWS, Object, part

VALID_TTL_S = 30.0
"""A revoked token stays valid for up to this time."""
INVALID_TTL_S = 5.0
MAX_CACHED = 4096
MAX_CONCURRENT = 8
MAX_PENDING = 64
MAX_TOKEN_CHARS = 16 * 1024
SERVICE_ACCOUNT = "system:serviceaccount:"
SERVICE_ACCOUNT_PREFIX, DIGEST_PREFIX = "sa.", "k8s-"
"""Prefixes of account names that rota makes: for service accounts, and for user names that rota
cannot use as they are. No user can choose a name that starts so."""
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,79}", re.ASCII)
_PRINTABLE = re.compile(r"[!-~]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class TokenReviewUser:
    """`name` is the account name in rota; `username` and `groups` come from the cluster."""

    name: str
    username: str
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class _CachedReview:
    user: TokenReviewUser | None
    until_s: float


class TokenReviewer:
    def __init__(
        self,
        client: KubeClient,
        *,
        audiences: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`audiences`: the audiences that a token may be for. None: those of the API server
        itself."""
        self._client = client
        self._audiences = audiences
        self._clock = clock
        self._cache: OrderedDict[str, _CachedReview] = OrderedDict()
        self._pending: dict[str, asyncio.Future[TokenReviewUser | None]] = {}
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._slots_of_known = asyncio.Semaphore(MAX_CONCURRENT)
        self._known: OrderedDict[str, None] = OrderedDict()
        """Hashes of tokens that were valid when they were last reviewed."""

    async def authenticate(self, token: str) -> TokenReviewUser | None:
        """The user of a token; None if the token is not valid. Raises if the cluster does not
        answer."""
        if len(token) > MAX_TOKEN_CHARS or not _PRINTABLE.fullmatch(token):
            return None
        digest = hashlib.sha256(token.encode()).hexdigest()
        cached = self._cache.get(digest)
        if cached is not None and cached.until_s > self._clock():
            return cached.user
        if digest in self._pending:
            return await asyncio.shield(self._pending[digest])
        is_known = digest in self._known
        if len(self._pending) >= MAX_PENDING and not is_known:
            raise UnavailableError("too many token reviews are pending", "retry in a few seconds")
        review = asyncio.ensure_future(
            self._review(token, slots=self._slots_of_known if is_known else self._slots)
        )
        self._pending[digest] = review
        review.add_done_callback(lambda done: self._cache_result(digest, done))
        return await asyncio.shield(review)

    async def _review(self, token: str, *, slots: asyncio.Semaphore) -> TokenReviewUser | None:
        spec: Object = {"token": token}
        spec |= {"audiences": list(self._audiences)} if self._audiences else {}
        async with slots:
            response = await self._client.create(TOKEN_REVIEWS, {"metadata": {}, "spec": spec})
        return user_from_review(part(response, "status"), audiences=self._audiences)

    def _cache_result(self, digest: str, review: asyncio.Future[TokenReviewUser | None]) -> None:
        del self._pending[digest]
        if review.cancelled() or review.exception() is not None:
            return
        user = review.result()
        ttl_s = INVALID_TTL_S if user is None else VALID_TTL_S
        self._cache[digest] = _CachedReview(user, self._clock() + ttl_s)
        self._cache.move_to_end(digest)
        self._known.pop(digest, None)
        if user is not None:
            self._known[digest] = None
        for each in (self._cache, self._known):
            while len(each) > MAX_CACHED:
                each.popitem(last=False)


def user_from_review(status: Object, *, audiences: tuple[str, ...] = ()) -> TokenReviewUser | None:
    """The user in the status of a TokenReview. A server that does not support audiences returns
    none; then the token is not accepted, because it may be for another service."""
    user = part(status, "user")
    username = user.get("username")
    if status.get("authenticated") is not True or not isinstance(username, str) or not username:
        return None
    if audiences and not set(audiences).intersection(status.get("audiences") or ()):
        return None
    groups = frozenset(str(each) for each in user.get("groups") or ())
    return TokenReviewUser(account_name(username), username, groups)


def account_name(username: str) -> str:
    """A unique account name for a user of the cluster. Two users never share a name, and no user
    can choose the name of another: a name that rota cannot use, or that looks like one that rota
    makes, gets a digest."""
    if username.startswith(SERVICE_ACCOUNT):
        namespace, _, name = username.removeprefix(SERVICE_ACCOUNT).partition(":")
        account = f"{SERVICE_ACCOUNT_PREFIX}{namespace}.{name}"
        # A namespace has no dot, so the first dot after the prefix separates the two.
        if name and "." not in namespace and ":" not in name and _PLAIN.fullmatch(account):
            return account
    elif _PLAIN.fullmatch(username) and not username.startswith(
        (SERVICE_ACCOUNT_PREFIX, DIGEST_PREFIX)
    ):
        return username
    plain = re.sub(r"[^A-Za-z0-9]+", "-", username).strip("-")[:40]
    return f"{DIGEST_PREFIX}{plain}-{hashlib.sha256(username.encode()).hexdigest()[:16]}"
