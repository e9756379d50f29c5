"""Who a cluster's token belongs to: the API server is asked, and its word is kept for a moment.

What is kept is the token's hash. Whoever sends one wrong token after the other costs the API server
no more than a few reviews at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from rota.engines.kubernetes.api import TOKEN_REVIEWS, Cluster
from rota.engines.kubernetes.objects import Object, part
from rota.errors import UnavailableError

KNOWN_S = 30.0
"""A token that is revoked opens us for so much longer."""
UNKNOWN_S = 5.0
MOST_KEPT = 4096
AT_ONCE = 8
MOST_WAITING = 64
LONGEST = 16 * 1024
SERVICE_ACCOUNT = "system:serviceaccount:"
OURS, DIGEST = "sa.", "k8s-"
"""How names begin that nobody can choose: of service accounts, and of what is no name for us."""
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,79}", re.ASCII)
_PRINTABLE = re.compile(r"[!-~]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Person:
    """`name` is what we call them; `username` and `groups` are the cluster's words."""

    name: str
    username: str
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Kept:
    person: Person | None
    until_s: float


class TokenReviews:
    def __init__(
        self,
        cluster: Cluster,
        *,
        audiences: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`audiences` are what a token may be for; none: whatever the API server itself takes."""
        self._cluster = cluster
        self._audiences = audiences
        self._clock = clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._under_way: dict[str, asyncio.Future[Person | None]] = {}
        self._room = asyncio.Semaphore(AT_ONCE)

    async def person(self, token: str) -> Person | None:
        """Whose token it is; None if the cluster does not know it. Raises when it does not say."""
        if len(token) > LONGEST or not _PRINTABLE.fullmatch(token):
            return None
        mark = hashlib.sha256(token.encode()).hexdigest()
        kept = self._kept.get(mark)
        if kept is not None and kept.until_s > self._clock():
            return kept.person
        if mark in self._under_way:
            return await asyncio.shield(self._under_way[mark])
        if len(self._under_way) >= MOST_WAITING:
            raise UnavailableError("too many tokens are being looked at", "try again in a moment")
        asking = asyncio.ensure_future(self._review(token))
        self._under_way[mark] = asking
        asking.add_done_callback(lambda done: self._keep(mark, done))
        return await asyncio.shield(asking)

    async def _review(self, token: str) -> Person | None:
        spec: Object = {"token": token}
        spec |= {"audiences": list(self._audiences)} if self._audiences else {}
        async with self._room:
            told = await self._cluster.create(TOKEN_REVIEWS, {"metadata": {}, "spec": spec})
        return person_of(part(told, "status"), audiences=self._audiences)

    def _keep(self, mark: str, asking: asyncio.Future[Person | None]) -> None:
        del self._under_way[mark]
        if asking.cancelled() or asking.exception() is not None:
            return
        person = asking.result()
        kept_s = UNKNOWN_S if person is None else KNOWN_S
        self._kept[mark] = _Kept(person, self._clock() + kept_s)
        self._kept.move_to_end(mark)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)


def person_of(status: Object, *, audiences: tuple[str, ...] = ()) -> Person | None:
    """From the status of a review. A server that does not know audiences names none, and then the
    token may have been meant for anybody."""
    user = part(status, "user")
    username = user.get("username")
    if status.get("authenticated") is not True or not isinstance(username, str) or not username:
        return None
    if audiences and not set(audiences).intersection(status.get("audiences") or ()):
        return None
    groups = frozenset(str(each) for each in user.get("groups") or ())
    return Person(name_of(username), username, groups)


def name_of(username: str) -> str:
    """No two of a cluster's users share a name with us, and none can choose that of another: what
    is no name for us, or looks like one that we make, has a digest in it."""
    if username.startswith(SERVICE_ACCOUNT):
        namespace, _, name = username.removeprefix(SERVICE_ACCOUNT).partition(":")
        made = f"{OURS}{namespace}.{name}"
        # A namespace has no dot, so that the first one after the prefix parts the two.
        if name and "." not in namespace and ":" not in name and _PLAIN.fullmatch(made):
            return made
    elif _PLAIN.fullmatch(username) and not username.startswith((OURS, DIGEST)):
        return username
    plain = re.sub(r"[^A-Za-z0-9]+", "-", username).strip("-")[:40]
    return f"{DIGEST}{plain}-{hashlib.sha256(username.encode()).hexdigest()[:16]}"
