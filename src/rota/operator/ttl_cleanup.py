"""TrainingJobs whose jobs are over: a cluster keeps them for a while, and not too many of them.

Only those that we made ourselves are removed. What people made with kubectl is theirs to delete:
whoever applies the same files again and again would run the job again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

import structlog

from rota.engines.kubernetes.api import ApiError, Change
from rota.errors import UnavailableError
from rota.store.training_jobs import Object, is_sealed, part
from rota.tasks import Bugs

log = structlog.get_logger()

LOOK_S = 10.0
AT_A_TIME = 50
"""So that what is over does not keep what is to come waiting."""
OVER = ("Complete", "Failed")


@dataclass(frozen=True, slots=True)
class Keep:
    for_s: float
    at_most: int


@dataclass(frozen=True, slots=True)
class _Ended:
    at_s: float
    name: str
    uid: str


Delete = Callable[[str, str], Awaitable[None]]
"""Takes an object's name and uid."""


class EndedObjects:
    """`key` tells what we made."""

    def __init__(
        self, delete: Delete, keep: Keep, *, key: bytes, clock: Callable[[], float]
    ) -> None:
        self._delete, self._keep = delete, keep
        self._key, self._clock = key, clock
        self._ended: dict[str, _Ended] = {}
        self._bugs = Bugs("an object of a job that is over is left alone")

    def hear(self, change: Change) -> None:
        found = change.object
        meta = found["metadata"]
        self._ended.pop(meta["uid"], None)
        is_leaving = change.type == "DELETED" or "deletionTimestamp" in meta
        # Whatever stands in one that anybody may write: it stays, and the others are seen.
        with self._bugs.of(object=meta["name"]):
            at_s = _ended_s(found)
            if at_s is not None and not is_leaving and is_sealed(found, key=self._key):
                self._ended[meta["uid"]] = _Ended(at_s, meta["name"], meta["uid"])

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                for each in self._due():
                    await self._remove(each)
            except UnavailableError as error:
                log.warning("what is over could not be removed", error=str(error))

    async def _remove(self, ended: _Ended) -> None:
        """What is refused for good stays, and the others go."""
        with self._bugs.of(object=ended.name):
            try:
                await self._delete(ended.name, ended.uid)
            except ApiError as error:
                if error.is_passing:
                    raise
                log.warning("what is over stays", object=ended.name, error=str(error))

    def _due(self) -> list[_Ended]:
        """The oldest first."""
        known = sorted(self._ended.values(), key=lambda each: each.at_s)
        n_too_many = max(0, len(known) - self._keep.at_most)
        before_s = self._clock() - self._keep.for_s
        late = (each for each in known[n_too_many:] if each.at_s < before_s)
        return [*known[:n_too_many], *late][:AT_A_TIME]


def _ended_s(found: Object) -> float | None:
    for condition in part(found, "status").get("conditions") or ():
        if condition.get("type") in OVER and condition.get("status") == "True":
            return datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()
    return None
