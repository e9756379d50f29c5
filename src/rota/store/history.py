"""What a batch means for attempts and their workers: every store writes them down alike."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rota.core.effects import Effects, Transition
from rota.core.model import Job, JobId, Running, Starting
from rota.core.states import State
from rota.store.records import Attempt, Worker

ALIVE = (State.STARTING, State.RUNNING, State.STOPPING)


@dataclass(slots=True)
class History:
    """Attempts that began here (and perhaps ended), ends of earlier ones, new members."""

    begun: dict[tuple[JobId, int], Attempt] = field(
        default_factory=dict[tuple[JobId, int], Attempt]
    )
    ended: list[Transition] = field(default_factory=list[Transition])
    workers: dict[tuple[JobId, int, int, int], Worker] = field(
        default_factory=dict[tuple[JobId, int, int, int], Worker]
    )


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
            for worker in _members(effects.jobs[transition.job_id]):
                found.workers[worker_key(worker)] = worker
    return found


def ended(attempt: Attempt, transition: Transition) -> Attempt:
    return replace(
        attempt, ended_s=transition.at_s, outcome=transition.after, reason=transition.reason
    )


def worker_key(worker: Worker) -> tuple[JobId, int, int, int]:
    return worker.job_id, worker.attempt, worker.generation, worker.number


def _members(job: Job) -> list[Worker]:
    """The members of the job's newest generation. A job that is stopping has no new ones, and
    numbers old and new ones together."""
    match job.phase:
        case Starting(allocation=allocation) | Running(allocation=allocation, joining=()):
            members = allocation
        case Running(joining=joining):
            members = joining
        case _:
            members = ()
    return [
        Worker(job.id, job.attempt, job.generation, number, slot)
        for number, slot in enumerate(members)
    ]
