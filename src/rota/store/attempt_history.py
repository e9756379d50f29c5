"""Derives rows of attempts and workers from the effects of a batch.

Every store calls `history`, so that all stores record attempts in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rota.core.lifecycle.states import JobState
from rota.core.model.effects import Effects, Transition
from rota.core.model.job import Job, JobId
from rota.store.records import Attempt, Worker

WorkerRowKey = tuple[JobId, int, int]
ALIVE = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)


@dataclass(slots=True)
class History:
    """Changes of attempts in one batch: new attempts, ends of earlier attempts, new workers.

    An attempt that starts and ends in the same batch is in `begun` only, with its end.
    """

    begun: dict[tuple[JobId, int], Attempt] = field(
        default_factory=dict[tuple[JobId, int], Attempt]
    )
    ended: list[Transition] = field(default_factory=list[Transition])
    workers: dict[WorkerRowKey, Worker] = field(default_factory=dict[WorkerRowKey, Worker])


def history(effects: Effects) -> History:
    found = History()
    for transition in effects.transitions:
        key = (transition.job_id, transition.attempt)
        was_alive, is_alive = transition.before in ALIVE, transition.after in ALIVE
        if is_alive and not was_alive:
            found.begun[key] = Attempt(*key, started_s=transition.at_s)
        elif was_alive and not is_alive and key in found.begun:
            found.begun[key] = ended(found.begun[key], transition)
        elif was_alive and not is_alive:
            found.ended.append(transition)
        if is_alive and transition.job_id in effects.jobs:
            found.workers.update(_members(effects.jobs[transition.job_id], transition.at_s))
    return found


def ended(attempt: Attempt, transition: Transition) -> Attempt:
    return replace(
        attempt, ended_s=transition.at_s, outcome=transition.after, reason=transition.reason
    )


def _members(job: Job, now: float) -> dict[WorkerRowKey, Worker]:
    """The current workers of a job. A store must not overwrite a worker that it already has."""
    return {
        (job.id, job.attempt, number): Worker(
            job.id, job.attempt, number, job.generation, slot, ordered_s=now
        )
        for number, slot in zip(job.numbers, job.members, strict=True)
    }
