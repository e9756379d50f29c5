"""What a batch means for attempts and their workers: every store writes them down alike."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rota.core.effects import Effects, Transition
from rota.core.model import Job, JobId
from rota.core.states import State
from rota.store.records import Attempt, Worker

WorkerKey = tuple[JobId, int, int]
ALIVE = (State.STARTING, State.RUNNING, State.STOPPING)


@dataclass(slots=True)
class History:
    """Attempts that began here (and perhaps ended), ends of earlier ones, new members."""

    begun: dict[tuple[JobId, int], Attempt] = field(
        default_factory=dict[tuple[JobId, int], Attempt]
    )
    ended: list[Transition] = field(default_factory=list[Transition])
    workers: dict[WorkerKey, Worker] = field(default_factory=dict[WorkerKey, Worker])


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


def _members(job: Job, now: float) -> dict[WorkerKey, Worker]:
    """The workers that a job has now; whoever writes them leaves alone those it knows."""
    return {
        (job.id, job.attempt, number): Worker(
            job.id, job.attempt, number, job.generation, slot, ordered_s=now
        )
        for number, slot in zip(job.numbers, job.members, strict=True)
    }
