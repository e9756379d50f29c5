"""The commands that a job's state requires.

Pure functions of one job. The kernel collects the commands in its effects; the daemon sends them
after it has stored the effects.
"""

from __future__ import annotations

from rota.core.lifecycle.transitions import stops_gracefully
from rota.core.model.commands import (
    AskToStop,
    ChangeMembership,
    Command,
    KillWorkers,
    ReportWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.model.events import StartFailed, WorkersSilent
from rota.core.model.job import Job, Running, Starting, Stopping

KILL_AFTER_S = 10.0
"""Grace period of a program that was already asked to stop and did not."""


def commands_after(before: Job, job: Job) -> list[Command]:
    """The commands that a transition from `before` to `job` requires."""
    match before.phase, job.phase:
        case _, Starting():
            return [_start(job)]
        case Stopping(insists_at_s=float()), Stopping(insists_at_s=None):
            return [stop_command(job)]
        case Stopping(), Stopping():
            return []
        case _, Stopping():
            return [_ask_or_stop(job, job.phase)]
        case Running(), Running() if job.generation > before.generation:
            return [_change(job)]
        case _:
            return []


def commands_to_resend(job: Job) -> list[Command]:
    """The commands to send again after a crash, with their old fence: a command may not have
    arrived, or its answer may be lost."""
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


def kill_commands(job: Job, event: WorkersSilent | StartFailed) -> list[Command]:
    """The commands to kill silent workers that block the others, or new workers whose start failed.
    Their exit arrives later as an event, like any other exit."""
    if isinstance(event, StartFailed):
        killed = job.newcomers if event.generation == job.generation else frozenset[int]()
    else:
        killed = event.workers
    workers = tuple(n for n in job.numbers if n in killed)
    if not workers or not isinstance(job.phase, Running) or event.attempt != job.attempt:
        return []
    return [KillWorkers(job.id, job.attempt, workers)]


def _ask_or_stop(job: Job, phase: Stopping) -> Command:
    if phase.insists_at_s is None:
        return stop_command(job)
    return AskToStop(job.id, job.attempt, job.numbers, phase.reason, phase.insists_at_s)


def stop_command(job: Job) -> StopWorkers:
    """The command to stop all workers. A program that was asked to stop has already used its grace
    period."""
    was_asked = isinstance(job.phase, Stopping) and stops_gracefully(job, job.phase.purpose)
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
