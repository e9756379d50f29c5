"""Effects that the kernel wants. Each is idempotent and carries the fence (job, attempt,
generation), so that an engine can tell a repeated order from a new one."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.model import Allocation, JobId


@dataclass(frozen=True, slots=True)
class StartWorkers:
    """Start one worker in each slot."""

    job_id: JobId
    attempt: int
    generation: int
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class StopWorkers:
    """Ask all workers of the attempt to stop, and end them after the grace period. An engine
    that knows nothing of the attempt never starts it and reports its workers as gone."""

    job_id: JobId
    attempt: int
    workers: int
    grace_s: float


@dataclass(frozen=True, slots=True)
class ChangeMembership:
    """Go on with these members instead, without a stop: the next generation."""

    job_id: JobId
    attempt: int
    generation: int
    allocation: Allocation


Command = StartWorkers | StopWorkers | ChangeMembership
