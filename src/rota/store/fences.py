"""What of a job others rest upon, and the one start that rests upon nothing written. Pure.

An API server takes a name once. The only worker of a first attempt has one name, and its pod is
held until its end is in the job's status. So of a job without a status either that pod is there,
and tells all that a fence would, or the job has not begun.
"""

from __future__ import annotations

from collections.abc import Mapping

from rota.core.model import Job, JobId, Phase, Queued, Running, Slot, Starting
from rota.core.phases import Entry, enter
from rota.core.states import State

First = tuple[Slot, float]
"""Where the only worker of a first attempt is or is sent to, and since when."""
FirstWorkers = Mapping[JobId, First]


def essence(job: Job) -> tuple[object, ...]:
    """Without what a start that is ordered again, or the next report, tells again."""
    return (
        _without_starts(job.phase),
        job.spec,
        (job.attempt, job.generation, job.workers_numbered),
        (job.failures, job.idle_attempts, job.losses, job.deaths),
        (job.pinned_workers, job.cap),
    )


def is_first_start(before: Job, job: Job) -> bool:
    """Whether all that happened is that the job's one worker, on GPUs of its own, is sent off for
    the first time."""
    phase = job.phase
    if not isinstance(phase, Starting) or len(phase.allocation) != 1:
        return False
    [slot] = phase.allocation
    if slot.share_bytes or before.attempt or not isinstance(before.phase, Queued):
        return False
    return essence(begun(before, (slot, phase.since_s))) == essence(job)


def begun(job: Job, first: First) -> Job:
    """A job that only waited, as it is once its first worker was sent off."""
    slot, since_s = first
    entry = Entry(max(since_s, job.service.as_of_s), allocation=(slot,))
    return enter(job, State.STARTING, entry=entry)


def _without_starts(phase: Phase) -> Phase:
    """Whether those who were sent to their places have arrived there does not count."""
    if isinstance(phase, Starting):
        return Starting(0.0, phase.allocation, exits=phase.exits)
    if isinstance(phase, Running) and not phase.joining:
        is_first = phase.numbers == tuple(range(len(phase.allocation)))
        return Starting(0.0, phase.allocation, exits=phase.exits) if is_first else phase
    return phase
