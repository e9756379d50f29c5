"""Delete TrainingJobs of finished jobs: after a time limit, and when there are too many of them.

If there are too many, the user who has most loses the oldest: no user displaces the objects of
others.

Only objects that rota created are deleted. Objects from kubectl stay until their owner deletes
them: the owner may apply the same file again, and a missing object would start the job again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from rota.errors import UnavailableError
from rota.kube.errors import ApiError
from rota.kube.resources import WatchEvent
from rota.operator.spec_parser import claimed_user
from rota.store.kubernetes.crd_codec import Object, is_sealed, part
from rota.tasks import ErrorIsolation

log = structlog.get_logger()

CLEAN_UP_INTERVAL_S = 10.0
MAX_PER_PASS = 50
"""A limit, so that deletes do not delay more urgent requests."""
FINISHED_CONDITIONS = ("Complete", "Failed")


@dataclass(frozen=True, slots=True)
class TtlLimits:
    """`for_s`: how long a finished object is kept. `at_most`: how many are kept."""

    for_s: float
    at_most: int


@dataclass(frozen=True, slots=True)
class _Finished:
    at_s: float
    name: str
    uid: str
    user: str = ""


Delete = Callable[[str, str], Awaitable[None]]
"""Called with the name and the uid of an object."""


class TtlCleaner:
    """`key` verifies the seal of objects that rota created."""

    def __init__(
        self, delete: Delete, keep: TtlLimits, *, key: bytes, clock: Callable[[], float]
    ) -> None:
        self._delete, self._keep = delete, keep
        self._key, self._clock = key, clock
        self._finished: dict[str, _Finished] = {}
        self._isolation = ErrorIsolation("finished TrainingJob not cleaned up")

    def on_change(self, change: WatchEvent) -> None:
        found = change.object
        meta = found["metadata"]
        self._finished.pop(meta["uid"], None)
        is_deleting = change.type == "DELETED" or "deletionTimestamp" in meta
        # A malformed object stays; it must not affect the others.
        with self._isolation.of(object=meta["name"]):
            at_s = _finished_s(found)
            if at_s is not None and not is_deleting and is_sealed(found, key=self._key):
                self._finished[meta["uid"]] = _Finished(
                    at_s, meta["name"], meta["uid"], claimed_user(found)
                )

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CLEAN_UP_INTERVAL_S)
            try:
                for each in self._due():
                    await self._remove(each)
            except UnavailableError as error:
                log.warning("finished TrainingJobs not deleted; retrying", error=str(error))

    async def _remove(self, finished: _Finished) -> None:
        """If the API server refuses a delete permanently, the object stays, and the others are
        deleted."""
        with self._isolation.of(object=finished.name):
            try:
                await self._delete(finished.name, finished.uid)
            except ApiError as error:
                if error.is_transient:
                    raise
                log.warning(
                    "finished TrainingJob not deleted", object=finished.name, error=str(error)
                )

    def _due(self) -> list[_Finished]:
        """The objects to delete, oldest first."""
        known = sorted(self._finished.values(), key=lambda each: each.at_s)
        excess = _excess(known, max(0, len(known) - self._keep.at_most))
        before_s = self._clock() - self._keep.for_s
        late = (each for each in known if each.at_s < before_s and each not in excess)
        return [*excess, *late][:MAX_PER_PASS]


def _excess(known: Sequence[_Finished], n_too_many: int) -> list[_Finished]:
    """The oldest objects of the users who have most, as far as one pass deletes them."""
    by_user: dict[str, deque[_Finished]] = {}
    for each in known:
        by_user.setdefault(each.user, deque()).append(each)
    return [max(by_user.values(), key=len).popleft() for _ in range(min(n_too_many, MAX_PER_PASS))]


def _finished_s(found: Object) -> float | None:
    for condition in part(found, "status").get("conditions") or ():
        if condition.get("type") in FINISHED_CONDITIONS and condition.get("status") == "True":
            return datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()
    return None
