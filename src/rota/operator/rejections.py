"""Report TrainingJobs that are not accepted as jobs: in their status and in a Kubernetes event."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from rota.core.lifecycle.states import JobState
from rota.core.model.job import JobId
from rota.kube.errors import ApiError
from rota.kube.resources import TRAINING_JOBS, Object
from rota.operator.training_jobs import TrainingJobClient
from rota.store.kubernetes.crd_codec import JOB, part, rfc3339

log = structlog.get_logger()

REFUSED = "refused"


class RejectionReporter:
    """Writes rejections and remembers them by generation."""

    def __init__(self, resources: TrainingJobClient, clock: Callable[[], float]) -> None:
        self._resources, self._clock = resources, clock
        self._rejected: dict[str, int] = {}
        """The rejected generation by uid. The cluster may have refused to store it in the
        status."""

    def has_rejected(self, found: Object) -> bool:
        """Whether the current generation of the object was rejected."""
        known = self._rejected.get(found["metadata"]["uid"])
        return known == generation_of(found) or is_rejected(found)

    def forget(self, uid: str) -> None:
        self._rejected.pop(uid, None)

    async def reject(self, found: Object, message: str) -> None:
        """Write the rejection into the status and an event."""
        condition = {
            "type": "Accepted",
            "status": "False",
            "reason": "Refused",
            "message": message,
            "lastTransitionTime": rfc3339(self._clock()),
        }
        await self._resources.patch_status(
            found["metadata"]["name"],
            {
                "state": REFUSED,
                "reason": message,
                "observedGeneration": generation_of(found),
                "conditions": [condition],
            },
        )
        self._rejected[found["metadata"]["uid"]] = generation_of(found)
        await self.emit_event(found, reason="Refused", message=message)

    async def mark_unreadable(self, found: Object, message: str) -> None:
        """The status of an object that cannot be read stays as it is, except for the reason."""
        if part(found, "status").get("reason") != message:
            await self._resources.patch_status(found["metadata"]["name"], {"reason": message})
            await self.emit_event(found, reason="SetAside", message=message)

    async def emit_event(self, found: Object, *, reason: str, message: str) -> None:
        try:
            await self._resources.event(found, kind=TRAINING_JOBS, reason=reason, message=message)
        except ApiError as error:
            log.warning("event not written", error=str(error))


def is_rejected(found: Object) -> bool:
    """Whether the status says that the newest generation is rejected."""
    status = part(found, "status")
    is_current = status.get("observedGeneration") == generation_of(found)
    return status.get("state") == REFUSED and is_current


def recreated_reason(meta: Object, outcomes: Mapping[JobId, JobState]) -> str:
    """Why an object that rota created is rejected: its job has ended or is unknown."""
    job_id = JobId(str(part(meta, "labels").get(JOB) or meta["name"]))
    state = outcomes.get(job_id)
    if state is not None:
        return f"this object was restored, but job {job_id} has {state.value}; submit the job again"
    return f"job {job_id} is unknown: its object was restored or is too old; submit the job again"


def generation_of(found: Object) -> int:
    return found["metadata"].get("generation") or 1
