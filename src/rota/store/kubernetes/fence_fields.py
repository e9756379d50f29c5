"""What of a job others rest upon: it has to be written before anything is done about it. Pure."""

from __future__ import annotations

from rota.core.model import Job, Phase, Running, Starting


def essence(job: Job) -> tuple[object, ...]:
    """Without what a start that is ordered again, or the next report, tells again."""
    return (
        _without_starts(job.phase),
        job.spec,
        (job.attempt, job.generation, job.workers_numbered),
        (job.failures, job.idle_attempts, job.losses, job.deaths),
        (job.pinned_workers, job.cap, job.refusal),
    )


def _without_starts(phase: Phase) -> Phase:
    """Whether those who were sent to their places have arrived there does not count."""
    if isinstance(phase, Starting):
        return Starting(0.0, phase.allocation, exits=phase.exits)
    if isinstance(phase, Running) and not phase.joining:
        is_first = phase.numbers == tuple(range(len(phase.allocation)))
        return Starting(0.0, phase.allocation, exits=phase.exits) if is_first else phase
    return phase
