"""Which orders a job's phase calls for. Pure: the kernel collects them, the shell sends them."""

from __future__ import annotations

from rota.core.commands import (
    ChangeMembership,
    Command,
    ReportWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.model import Job, Running, Starting, Stopping


def orders_after(before: Job, job: Job) -> list[Command]:
    """What a transition calls for."""
    match before.phase, job.phase:
        case _, Starting():
            return [_start(job)]
        case Stopping(), Stopping():
            return []
        case _, Stopping():
            return [stop(job)]
        case Running(joining=()), Running(joining=(_, *_)):
            return [_change(job)]
        case _:
            return []


def standing_orders(job: Job) -> list[Command]:
    """What is given again after a crash, with its old fence: an order may not have arrived, or
    the answer to it may have been lost."""
    match job.phase:
        case Starting():
            return [_start(job)]
        case Stopping():
            return [stop(job)]
        case Running(joining=(_, *_)):
            return [_report(job), _change(job)]
        case Running():
            return [_report(job)]
        case _:
            return []


def stop(job: Job) -> StopWorkers:
    return StopWorkers(job.id, job.attempt, job.numbers, job.spec.grace_s)


def _start(job: Job) -> StartWorkers:
    return StartWorkers(job.id, job.attempt, job.generation, job.allocation)


def _report(job: Job) -> ReportWorkers:
    return ReportWorkers(job.id, job.attempt, job.numbers)


def _change(job: Job) -> ChangeMembership:
    assert isinstance(job.phase, Running)
    phase = job.phase
    return ChangeMembership(
        job.id, job.attempt, job.generation, phase.joining, phase.joining_numbers
    )
