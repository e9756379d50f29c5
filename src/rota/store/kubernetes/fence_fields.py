"""Selects the fields of a job that must be durable before the daemon acts on them. Pure."""

from __future__ import annotations

from rota.core.model.job import Job, Phase, Running, Starting


def fence_fields(job: Job) -> tuple[object, ...]:
    """Return the fields whose change must be durable before any command about the job.

    The result leaves out fields that the next progress report or a repeated start restores.
    """
    return (
        _without_starts(job.phase),
        job.spec,
        (job.attempt, job.generation, job.workers_numbered),
        (job.failures, job.idle_attempts, job.losses, job.deaths),
        (job.pinned_workers, job.cap, job.refusal),
    )


def _without_starts(phase: Phase) -> Phase:
    """Hide whether the workers of the first generation have reported their start."""
    if isinstance(phase, Starting):
        return Starting(0.0, phase.allocation, exits=phase.exits)
    if isinstance(phase, Running) and not phase.joining:
        is_first = phase.numbers == tuple(range(len(phase.allocation)))
        return Starting(0.0, phase.allocation, exits=phase.exits) if is_first else phase
    return phase
