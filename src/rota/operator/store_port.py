"""What the operator needs from the store that keeps jobs in TrainingJobs."""

from __future__ import annotations

from typing import Protocol

from rota.core.model.job import JobId
from rota.store.kubernetes.crd_codec import StatusDetails
from rota.store.records import Submission


class TrainingJobStore(Protocol):
    """Which object belongs to which job, and what the status of the object shows."""

    def adopt(self, job_id: JobId, name: str) -> None:
        """Store a new job in the object of this name, which a user created."""
        ...

    def submission(self, job_id: JobId) -> Submission | None:
        """What was submitted; None if the job is unknown."""
        ...

    def status_details(self, job_id: JobId) -> StatusDetails:
        """The details that the object's status shows, or will show with the next write."""
        ...

    def set_status_details(self, job_id: JobId, details: StatusDetails) -> None:
        """Show these details with the next write of the status."""
        ...

    def is_own_object(self, job_id: JobId, name: str, *, accepted: str) -> bool:
        """Whether the store created this object for this job."""
        ...

    def owns_object(self, job_id: JobId) -> bool:
        """Whether the job has an object that the store writes to."""
        ...

    def forget_object(self, job_id: JobId) -> None:
        """Forget the object of a job: it was deleted."""
        ...

    async def remove_finalizer(self, job_id: JobId, name: str) -> None:
        """Let a deleted object go, after everything about its job is written."""
        ...
