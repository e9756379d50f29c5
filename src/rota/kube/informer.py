"""A kind of object, kept in view: listed once, then followed change by change.

Whoever listens is told of every change once, whether a watch told it or a list showed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from rota.engines.kubernetes.api import ApiError, Change, Cluster, Kind, Object, Scope
from rota.engines.kubernetes.objects import Listing
from rota.engines.kubernetes.transport import GONE, wait_s

log = structlog.get_logger()

FAILURES_TRUSTED = 4
"""After so many in a row the version itself may be the trouble: that of a cluster that was put
back to an older state is never reached again."""

CATCH_UP_S = 5.0
SOUND_S = 1.0
"""After a watch that ends sooner than this, the next one is not begun without a pause."""

Key = tuple[str, str]
Listener = Callable[[Change], None]


class Seen:
    """Which version of which object was told of. The objects themselves are the listener's."""

    def __init__(self) -> None:
        self._versions: dict[Key, tuple[str, str]] = {}

    def news(self, change: Change) -> list[Change]:
        """What is new about a change: nothing, if it was told before. An object in the place of
        another of the same name means that the other is gone."""
        meta = change.object["metadata"]
        key = meta.get("namespace", ""), meta["name"]
        known = self._versions.get(key)
        if change.type == "DELETED":
            if known is None or known[0] != meta["uid"]:
                return []
            del self._versions[key]
            return [change]
        if known == (meta["uid"], meta["resourceVersion"]):
            return []
        self._versions[key] = meta["uid"], meta["resourceVersion"]
        if known is None:
            return [Change("ADDED", change.object)]
        if known[0] != meta["uid"]:
            return [Change("DELETED", _stub(key, known[0])), Change("ADDED", change.object)]
        return [Change("MODIFIED", change.object)]

    def relisted(self, objects: Iterable[Object]) -> list[Change]:
        """What is new about all that there is: what is not in it is gone."""
        told: list[Change] = []
        missing = set(self._versions)
        for each in objects:
            meta = each["metadata"]
            missing.discard((meta.get("namespace", ""), meta["name"]))
            told += self.news(Change("ADDED", each))
        for key in missing:
            told.append(Change("DELETED", _stub(key, self._versions.pop(key)[0])))
        return told

    def is_behind(self, objects: Iterable[Object], *, listed: str, told: str) -> bool:
        """Whether something of this list was not told of yet, or that something is not in it.
        `listed` is the list's own version, `told` that of the last change."""
        missing = dict(self._versions)
        for each in objects:
            meta = each["metadata"]
            known = missing.pop((meta.get("namespace", ""), meta["name"]), None)
            # What we do not know, and was told of, is gone by now.
            if int(known[1] if known else told) < int(meta["resourceVersion"]):
                return True
        return any(int(version) <= int(listed) for _, version in missing.values())


def _stub(key: Key, uid: str) -> Object:
    """All that is known of an object that went away while nobody looked."""
    namespace, name = key
    return {"metadata": {"namespace": namespace, "name": name, "uid": uid}}


def _nobody_listed() -> Listing | None:
    return None


class Reflector:
    """What somebody has just listed of them, the `first` look need not ask for again; later ones
    have to."""

    def __init__(
        self,
        cluster: Cluster,
        kind: Kind,
        *,
        scope: Scope,
        listener: Listener,
        first: Callable[[], Listing | None] = _nobody_listed,
    ) -> None:
        self._cluster, self._kind, self._scope = cluster, kind, scope
        self._listener, self._first = listener, first
        self._seen = Seen()
        self._version = ""
        self._told = asyncio.Event()

    async def sync(self) -> None:
        """Look at all there is."""
        first, self._first = self._first, _nobody_listed
        objects, self._version = first() or await self._cluster.list(self._kind, self._scope)
        for change in self._seen.relisted(objects):
            self._listener(change)

    async def catch_up(self) -> None:
        """While it runs: returns when all that is there by now was told of. Only names and
        versions are asked for, unless they do not come."""
        there, listed = await self._cluster.list(self._kind, self._scope, is_brief=True)
        try:
            async with asyncio.timeout(CATCH_UP_S):
                while self._seen.is_behind(there, listed=listed, told=self._version or "0"):
                    self._told.clear()
                    await self._told.wait()
        except TimeoutError:
            await self.sync()

    async def run(self) -> None:
        """Follow for ever. A break is made good from where it happened, or by looking at all
        there is where that is too long ago."""
        loop = asyncio.get_running_loop()
        n_failures = n_short = 0
        while True:
            began_s = loop.time()
            try:
                await self._follow()
                n_failures = 0
                n_short = 0 if loop.time() - began_s >= SOUND_S else n_short + 1
            except ApiError as error:
                self._complain(error, n_failures)
                n_failures += 1
                if error.status == GONE or n_failures >= FAILURES_TRUSTED:
                    self._version = ""
            if n_failures or n_short:
                await asyncio.sleep(wait_s(max(n_failures, n_short)))

    async def _follow(self) -> None:
        if not self._version:
            await self.sync()
        watch = self._cluster.watch(self._kind, self._scope, version=self._version)
        async for change in watch:
            if change.type != "BOOKMARK":
                for news in self._seen.news(change):
                    self._listener(news)
            self._version = change.object["metadata"]["resourceVersion"]
            self._told.set()

    def _complain(self, error: ApiError, n_failures: int) -> None:
        if n_failures == 0 and error.status != GONE:
            log.warning("watch is broken; begun again", what=self._kind.plural, error=str(error))


Care = Callable[[], Awaitable[None]]
Hear = Callable[[ApiError], None]


def _nobody_hears(_: ApiError) -> None:
    pass


async def insist(care: Care, *, what: str, hear: Hear = _nobody_hears) -> None:
    """Until the cluster takes it or refuses it: what must not be forgotten. Each try that comes
    to nothing is heard of."""
    n_failures = 0
    while True:
        try:
            return await care()
        except ApiError as error:
            if not error.is_passing:
                raise
            if n_failures == 0:
                log.warning("the cluster is waited for", what=what, error=str(error))
            hear(error)
        await asyncio.sleep(wait_s(n_failures))
        n_failures += 1
