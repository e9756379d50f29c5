"""What a command that could not be executed means for its job.

Every command gets an answer. A failed start frees what the job holds: the job returns to the queue,
or continues without the workers that it wanted to add. Other commands have nothing to free, so the
daemon executes them again, after a back-off, as long as they are due. Pure functions of one job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from rota.core.lifecycle.size_caps import capped
from rota.core.lifecycle.states import Purpose, Trigger
from rota.core.lifecycle.transitions import Reaction
from rota.core.model.commands import (
    AskToStop,
    ChangeMembership,
    Command,
    KillWorkers,
    ReportWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.model.events import Bug, JobRemarked, StartFailed, WorkersExited
from rota.core.model.job import Job, Running, Starting, Stopping

CANNOT_START_CODE = 126
"""Exit code of workers that can never start. Shells use it for a program that cannot be run."""
RETRIED: Mapping[type[Command], str] = {
    ChangeMembership: "the change of its workers could not be sent",
    StopWorkers: "its workers could not be stopped",
    KillWorkers: "workers could not be killed",
    ReportWorkers: "its workers could not be queried",
    AskToStop: "its program could not be asked to stop",
}
"""What failed, in the history of the job, for commands that are retried."""


def is_due(command: Command, job: Job | None) -> bool:
    """Whether the command still has to be executed. `job` is its job now, None if it has ended."""
    match command:
        case StopWorkers():
            return True  # The workers may belong to no job.
        case _ if job is None or job.attempt != command.attempt:
            return False
        case StartWorkers():
            return isinstance(job.phase, Starting)
        case ChangeMembership(generation=generation):
            is_changing = isinstance(job.phase, Running) and bool(job.phase.joining)
            return is_changing and job.generation == generation
        case KillWorkers() | ReportWorkers() | AskToStop():
            # A job whose workers are being stopped needs no more than the stop.
            is_asked = isinstance(job.phase, Stopping) and job.phase.insists_at_s is not None
            return isinstance(job.phase, Running) or is_asked


class FailureKind(Enum):
    """What kind of error a command failed with."""

    TEMPORARY = auto()
    """The cause may pass, such as a full disk."""
    PERMANENT = auto()
    """A first start would fail again."""
    INTERNAL = auto()
    """An error that no code expects: a bug in rota. Some of the workers may have started."""


@dataclass(frozen=True, slots=True)
class FailureAnswer:
    """The answer to a failed command: an event, and whether the daemon retries the command."""

    event: StartFailed | WorkersExited | JobRemarked | Bug
    is_retried: bool = False


def answer_to_failure(
    command: Command, job: Job | None, *, reason: str, kind: FailureKind
) -> FailureAnswer:
    """The answer to a command that failed for this reason. `job` is its job now. A start that fails
    for good fails the job; one that fails by a bug stops and holds the job."""
    job_id, attempt = command.job_id, command.attempt
    match command:
        case StartWorkers() if kind is FailureKind.INTERNAL:
            return FailureAnswer(Bug(job_id, attempt, reason))
        case StartWorkers(allocation=allocation) if kind is FailureKind.PERMANENT:
            codes = dict.fromkeys(range(len(allocation)), CANNOT_START_CODE)
            return FailureAnswer(WorkersExited(job_id, attempt, codes, reason))
        case StartWorkers(generation=generation):
            return FailureAnswer(StartFailed(job_id, attempt, generation, reason))
        case ChangeMembership(generation=generation) if job is not None and job.newcomers:
            return FailureAnswer(StartFailed(job_id, attempt, generation, reason))
        case _:
            remark = f"{RETRIED[type(command)]}: {reason}; will be retried"
            return FailureAnswer(JobRemarked(job_id, attempt, remark), is_retried=True)


def start_failed(job: Job, event: StartFailed, *, now: float) -> Reaction:
    """The reaction to a start that failed. Some of the workers may have started, so the engine has
    to stop or kill all of them before their slots are free."""
    reason = f"cannot start: {event.reason}"
    if event.generation != job.generation:
        return Reaction(job, None)
    match job.phase:
        case Starting():
            # With at least one loss, the job backs off before its next attempt.
            waiting = replace(job, losses=max(1, job.losses))
            return Reaction(waiting, Trigger.STOP, reason, Purpose.LOST)
        case Running(joining_numbers=numbers) if job.newcomers:
            n_left = len(set(numbers) - job.newcomers)
            return Reaction(capped(job, n_left, why=reason, now=now), None, reason)
        case _:
            return Reaction(job, None)
