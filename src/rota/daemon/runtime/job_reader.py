"""The questions that services ask about the scheduler's current state.

The controller answers them. The services do not keep the kernel itself, because a recovery replaces
it by another one.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from rota.core.lifecycle.states import JobState
from rota.core.model.job import Job, JobId
from rota.core.model.node import Node, NodeId


class JobReader(Protocol):
    """Reads the jobs and nodes that the kernel knows. They may be ahead of the store by one
    write."""

    def job(self, job_id: JobId) -> Job | None:
        """The job, if it has not ended."""
        ...

    @property
    def jobs(self) -> Mapping[JobId, Job]:
        """All jobs that have not ended, in order of submission."""
        ...

    @property
    def outcomes(self) -> Mapping[JobId, JobState]:
        """The final states of jobs that have ended."""
        ...

    @property
    def nodes(self) -> Mapping[NodeId, Node]: ...

    def changed(self) -> Coroutine[Any, Any, object]:
        """Wait for the next write after this call, also if the coroutine starts later."""
        ...
