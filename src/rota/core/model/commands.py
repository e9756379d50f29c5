"""Commands that the kernel sends to engines and training programs.

Every command is idempotent and carries a fence, so that an engine can tell a repeated command from
a new one. The fence is the job and its attempt, plus the generation where the command changes the
membership. Commands that stop, kill or query workers name them by number and need no generation,
because a worker number is used once in an attempt.
"""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.model.allocation import Allocation
from rota.core.model.job import JobId


@dataclass(frozen=True, slots=True)
class StartWorkers:
    """Start one worker in each slot: worker 0 in the first slot, worker 1 in the second, and so
    on."""

    job_id: JobId
    attempt: int
    generation: int
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class StopWorkers:
    """Stop all workers of the attempt: signal them, and kill them after the grace period. An engine
    that does not know a worker never starts it and reports it as gone."""

    job_id: JobId
    attempt: int
    workers: tuple[int, ...]
    grace_s: float


@dataclass(frozen=True, slots=True)
class AskToStop:
    """Ask a training program that listens to save its state and stop by itself. This command goes
    to the program, not to the engine. At `insists_at_s` the kernel stops the remaining workers with
    `StopWorkers`."""

    job_id: JobId
    attempt: int
    workers: tuple[int, ...]
    reason: str
    insists_at_s: float


@dataclass(frozen=True, slots=True)
class KillWorkers:
    """Kill these workers at once, with all their processes. The other workers of the attempt keep
    running. An engine that does not know a worker never starts it and reports it as gone."""

    job_id: JobId
    attempt: int
    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChangeMembership:
    """Continue as the next generation, without a stop: worker `workers[i]` runs in slot i. The
    engine starts new workers; workers that are not listed leave. If the attempt is already over in
    the engine, the engine reports again how its workers ended, and reports exit code 0 for the new
    workers, which it never starts; so they do not change the job's outcome."""

    job_id: JobId
    attempt: int
    generation: int
    allocation: Allocation
    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReportWorkers:
    """Report again which of these workers have started and how the others ended. The kernel sends
    this command after a crash, because reports may have been lost. If the engine does not know the
    attempt, it reports the workers as lost. If the attempt is over and the engine never had one of
    the workers, it reports exit code 0 for that worker."""

    job_id: JobId
    attempt: int
    workers: tuple[int, ...]


Command = StartWorkers | StopWorkers | AskToStop | KillWorkers | ChangeMembership | ReportWorkers
