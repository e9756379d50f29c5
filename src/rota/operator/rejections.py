"""What is told of a TrainingJob that is no job of ours: in its status, and in an event."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from rota.core.model import JobId
from rota.core.states import State
from rota.engines.kubernetes.api import TRAINING_JOBS, ApiError, Object
from rota.engines.kubernetes.resources import Resources
from rota.store.training_jobs import JOB, moment, part

log = structlog.get_logger()

REFUSED = "refused"


class Verdicts:
    def __init__(self, resources: Resources, clock: Callable[[], float]) -> None:
        self._resources, self._clock = resources, clock
        self._refused: dict[str, int] = {}
        """By their uids, the generations of objects that may not have been allowed to say so."""

    def has_refused(self, found: Object) -> bool:
        """Whether that was said of it as it is now."""
        known = self._refused.get(found["metadata"]["uid"])
        return known == generation_of(found) or is_refused(found)

    def forget(self, uid: str) -> None:
        self._refused.pop(uid, None)

    async def refuse(self, found: Object, words: str) -> None:
        condition = {
            "type": "Accepted",
            "status": "False",
            "reason": "Refused",
            "message": words,
            "lastTransitionTime": moment(self._clock()),
        }
        await self._resources.tell(
            found["metadata"]["name"],
            {
                "state": REFUSED,
                "reason": words,
                "observedGeneration": generation_of(found),
                "conditions": [condition],
            },
        )
        self._refused[found["metadata"]["uid"]] = generation_of(found)
        await self.announce(found, reason="Refused", words=words)

    async def set_aside(self, found: Object, words: str) -> None:
        """What cannot be read is left as it is, but for the reason why nothing happens."""
        if part(found, "status").get("reason") != words:
            await self._resources.tell(found["metadata"]["name"], {"reason": words})
            await self.announce(found, reason="SetAside", words=words)

    async def announce(self, found: Object, *, reason: str, words: str) -> None:
        try:
            await self._resources.event(found, kind=TRAINING_JOBS, reason=reason, words=words)
        except ApiError as error:
            log.warning("an event was not told", error=str(error))


def is_refused(found: Object) -> bool:
    """Whether its status says so, of its newest generation."""
    status = part(found, "status")
    is_current = status.get("observedGeneration") == generation_of(found)
    return status.get("state") == REFUSED and is_current


def why_put_back(meta: Object, outcomes: Mapping[JobId, State]) -> str:
    """Of an object that we made for a job that is over, or of which we know nothing."""
    job_id = JobId(str(part(meta, "labels").get(JOB) or meta["name"]))
    state = outcomes.get(job_id)
    if state is not None:
        return f"somebody put this object back, but job {job_id} has {state.value}; submit it anew"
    return f"nobody knows job {job_id}: its object was put back, or came too late; submit it anew"


def generation_of(found: Object) -> int:
    return found["metadata"].get("generation") or 1
