"""Which orders a job's phase calls for. Pure: the kernel collects them, the shell sends them."""

from __future__ import annotations

from rota.core.commands import (
    AskToStop,
    ChangeMembership,
    Command,
    KillWorkers,
    ReportWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.events import WorkersSilent
from rota.core.model import Job, Running, Starting, Stopping
from rota.core.phases import asks_first

KILL_AFTER_S = 10.0
"""What is left to a program that was asked before it was told to stop."""


def orders_after(before: Job, job: Job) -> list[Command]:
    """What a transition calls for."""
    match before.phase, job.phase:
        case _, Starting():
            return [_start(job)]
        case Stopping(insists_at_s=float()), Stopping(insists_at_s=None):
            return [stop(job)]
        case Stopping(), Stopping():
            return []
        case _, Stopping():
            return [_ask_or_stop(job, job.phase)]
        case Running(), Running() if job.generation > before.generation:
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
            return [_ask_or_stop(job, job.phase)]
        case Running(joining=(_, *_)):
            return [_report(job), _change(job)]
        case Running():
            return [_report(job)]
        case _:
            return []


def kill(job: Job, event: WorkersSilent) -> list[Command]:
    """What to do about workers that hold up the others: their exit is a fact like any other."""
    silent = tuple(n for n in job.numbers if n in event.workers)
    if not silent or not isinstance(job.phase, Running) or event.attempt != job.attempt:
        return []
    return [KillWorkers(job.id, job.attempt, silent)]


def _ask_or_stop(job: Job, phase: Stopping) -> Command:
    if phase.insists_at_s is None:
        return stop(job)
    return AskToStop(job.id, job.attempt, job.numbers, phase.reason, phase.insists_at_s)


def stop(job: Job) -> StopWorkers:
    """A program that was asked has had its grace period."""
    was_asked = isinstance(job.phase, Stopping) and asks_first(job, job.phase.purpose)
    grace_s = min(KILL_AFTER_S, job.spec.grace_s) if was_asked else job.spec.grace_s
    return StopWorkers(job.id, job.attempt, job.numbers, grace_s)


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
