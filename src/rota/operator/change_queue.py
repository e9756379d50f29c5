"""Watch events that wait to be processed: in turn from each user, so that no user delays others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from rota.kube.resources import Object, WatchEvent

MAX_KEPT_BYTES = 16 * 1024
"""A larger object is read again when its turn comes: a user may create thousands of them."""
KEPT_FIELDS = ("name", "namespace", "uid", "resourceVersion")


class ChangeQueue:
    """Events by object name. A newer state of an object replaces an older one that still waits;
    the events of one object keep their order. `user_of` names the user of an object."""

    def __init__(self, user_of: Callable[[Object], str]) -> None:
        self._user_of = user_of
        self._changes: dict[str, list[WatchEvent]] = {}
        """The events of each object that waits or is being processed."""
        self._names: dict[str, deque[str]] = {}
        """The names of the objects that wait, by user. The first user is next."""
        self._n_waiting = asyncio.Semaphore(0)

    def put(self, change: WatchEvent) -> None:
        kept = WatchEvent(change.type, without_content(change.object))
        name = change.object["metadata"]["name"]
        changes = self._changes.get(name)
        if changes is None:
            self._changes[name] = [kept]
            self._names.setdefault(self._user_of(change.object), deque()).append(name)
            self._n_waiting.release()
        elif changes and "DELETED" not in (changes[-1].type, kept.type):
            changes[-1] = kept
        else:
            changes.append(kept)

    async def next_name(self) -> str:
        """The next object. The caller takes its events with `pop` until there are none."""
        await self._n_waiting.acquire()
        user = next(iter(self._names))
        names = self._names.pop(user)
        name = names.popleft()
        if names:
            self._names[user] = names
        return name

    def pop(self, name: str) -> WatchEvent | None:
        """The next event of an object; None if it has no more events."""
        changes = self._changes[name]
        if changes:
            return changes.pop(0)
        del self._changes[name]
        return None


def without_content(found: Object) -> Object:
    """The object, or only its identity if it is large."""
    if "spec" not in found or len(msgspec.json.encode(found)) <= MAX_KEPT_BYTES:
        return found
    return identity_of(found)


def identity_of(found: Object) -> Object:
    """Name, namespace, uid and version of an object."""
    meta = found["metadata"]
    return {"metadata": {key: meta[key] for key in KEPT_FIELDS if key in meta}}


def has_content(change: WatchEvent) -> bool:
    """Whether the event has the object itself, or does not need it."""
    return change.type == "DELETED" or "spec" in change.object
