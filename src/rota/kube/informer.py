"""Delivers every change of one kind of object to a listener: list once, then watch.

The listener keeps the objects. It receives every change exactly once, from a watch event or from a
list. An error of the listener concerns one object: it is logged, and the other objects are
delivered, because a daemon that stops would find the same object again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from rota.errors import RotaError
from rota.kube.client import KubeClient
from rota.kube.errors import GONE, ApiError
from rota.kube.http import retry_delay_s
from rota.kube.resources import Listing, Object, ResourceKind, ResourceScope, WatchEvent
from rota.tasks import ErrorIsolation

log = structlog.get_logger()
MAX_RESUME_FAILURES = 4
"""After so many failures in a row, list again instead of resuming from the last version. A
cluster that was restored from a backup may never reach that version."""
CATCH_UP_TIMEOUT_S = 5.0
MIN_WATCH_S = 1.0
"""Pause before the next watch if a watch ended sooner than this."""
Key = tuple[str, str]
Listener = Callable[[WatchEvent], None]


class VersionTracker:
    """The version of each object that the listener knows. The listener keeps the objects."""

    def __init__(self) -> None:
        self._versions: dict[Key, tuple[str, str]] = {}

    def on_event(self, change: WatchEvent) -> list[WatchEvent]:
        """The changes that are new to the listener: none if it knows this version. A new uid
        under a known name means that the old object was deleted."""
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
            return [WatchEvent("ADDED", change.object)]
        if known[0] != meta["uid"]:
            return [WatchEvent("DELETED", _stub(key, known[0])), WatchEvent("ADDED", change.object)]
        return [WatchEvent("MODIFIED", change.object)]

    def on_list(self, objects: Iterable[Object]) -> list[WatchEvent]:
        """The changes that a list of all objects shows. An object that is not listed was
        deleted."""
        events: list[WatchEvent] = []
        missing = set(self._versions)
        for each in objects:
            meta = each["metadata"]
            missing.discard((meta.get("namespace", ""), meta["name"]))
            events += self.on_event(WatchEvent("ADDED", each))
        for key in missing:
            events.append(WatchEvent("DELETED", _stub(key, self._versions.pop(key)[0])))
        return events

    def is_behind(self, objects: Iterable[Object], *, listed: str, watched: str) -> bool:
        """Whether this list has changes that the watch has not delivered. `listed` is the
        version of the list, `watched` that of the last watch event."""
        missing = dict(self._versions)
        for each in objects:
            meta = each["metadata"]
            known = missing.pop((meta.get("namespace", ""), meta["name"]), None)
            # An unknown object with an older version was delivered and deleted since.
            if int(known[1] if known else watched) < int(meta["resourceVersion"]):
                return True
        return any(int(version) <= int(listed) for _, version in missing.values())


def _stub(key: Key, uid: str) -> Object:
    """The known fields of an object that was deleted while no watch was running."""
    namespace, name = key
    return {"metadata": {"namespace": namespace, "name": name, "uid": uid}}


def _no_listing() -> Listing | None:
    return None


class Reflector:
    """Lists and watches one kind of object. `first` may return a listing that was made
    elsewhere; it replaces the first list request."""

    def __init__(
        self,
        client: KubeClient,
        kind: ResourceKind,
        *,
        scope: ResourceScope,
        listener: Listener,
        first: Callable[[], Listing | None] = _no_listing,
    ) -> None:
        self._client, self._kind, self._scope = client, kind, scope
        self._listener, self._first = listener, first
        self._isolation = ErrorIsolation(f"change in {kind.plural} not processed")
        self._seen = VersionTracker()
        self._version = ""
        self._advanced = asyncio.Event()

    async def sync(self) -> None:
        """List all objects."""
        first, self._first = self._first, _no_listing
        objects, self._version = first() or await self._client.list(self._kind, self._scope)
        for change in self._seen.on_list(objects):
            self._deliver(change)

    async def catch_up(self) -> None:
        """Return when all changes up to now were delivered. Lists only metadata, and lists
        everything if the watch does not deliver in time. `run` must be running."""
        objects, listed = await self._client.list(self._kind, self._scope, is_metadata_only=True)
        try:
            async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
                while self._seen.is_behind(objects, listed=listed, watched=self._version or "0"):
                    self._advanced.clear()
                    await self._advanced.wait()
        except TimeoutError:
            await self.sync()

    async def run(self) -> None:
        """Watch forever. Resume a broken watch from its last version; list again if that version
        has expired."""
        loop = asyncio.get_running_loop()
        n_failures = n_short = 0
        while True:
            started_s = loop.time()
            try:
                await self._follow()
                n_failures = 0
                n_short = 0 if loop.time() - started_s >= MIN_WATCH_S else n_short + 1
            except ApiError as error:
                self._log_failure(error, n_failures)
                n_failures += 1
                if error.status == GONE or n_failures >= MAX_RESUME_FAILURES:
                    self._version = ""
            if n_failures or n_short:
                await asyncio.sleep(retry_delay_s(max(n_failures, n_short)))

    async def _follow(self) -> None:
        if not self._version:
            await self.sync()
        watch = self._client.watch(self._kind, self._scope, version=self._version)
        async for change in watch:
            if change.type != "BOOKMARK":
                for new in self._seen.on_event(change):
                    self._deliver(new)
            self._version = change.object["metadata"]["resourceVersion"]
            self._advanced.set()

    def _deliver(self, change: WatchEvent) -> None:
        meta = change.object["metadata"]
        with self._isolation.of(namespace=meta.get("namespace", ""), object=meta["name"]):
            try:
                self._listener(change)
            except RotaError as error:
                log.error("change not processed", object=meta["name"], error=str(error))

    def _log_failure(self, error: ApiError, n_failures: int) -> None:
        if n_failures == 0 and error.status != GONE:
            log.warning("watch failed; restarting", what=self._kind.plural, error=str(error))
