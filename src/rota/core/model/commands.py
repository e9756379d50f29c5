"""Effects that the kernel wants. Each is idempotent and carries a fence, so that an engine can tell
a repeated order from a new one: the job and its attempt, and the generation where members change.
A stop, a kill and a question are about workers by number, and need no generation: a number is
given once in an attempt."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.model import Allocation, JobId


@dataclass(frozen=True, slots=True)
class StartWorkers:
    """Start one worker in each slot: worker 0 in the first, worker 1 in the second, ..."""

    job_id: JobId
    attempt: int
    generation: int
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class StopWorkers:
    """Ask these workers, which are all of the attempt, to stop, and end them after the grace
    period. An engine that knows nothing of one never starts it and reports it as gone."""

    job_id: JobId
    attempt: int
    workers: tuple[int, ...]
    grace_s: float


@dataclass(frozen=True, slots=True)
class AskToStop:
    """Ask a program that hears us to save its state and stop by itself. It goes to the program,
    past the engine. At `insists_at_s` the workers that are left are stopped, heard or not."""

    job_id: JobId
    attempt: int
    workers: tuple[int, ...]
    reason: str
    insists_at_s: float


@dataclass(frozen=True, slots=True)
class KillWorkers:
    """End these workers at once, with all that they started, and leave the others of the attempt
    alone. An engine that knows nothing of one never starts it and reports it as gone."""

    job_id: JobId
    attempt: int
    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChangeMembership:
    """Go on with worker `workers[i]` in slot i, without a stop: the next generation. Whoever is
    new is started, and whoever is not listed leaves. An engine in which the attempt is over says
    again how its workers ended, and of the new ones, which it never starts, that they exited
    with 0, so that they change nothing about the end."""

    job_id: JobId
    attempt: int
    generation: int
    allocation: Allocation
    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReportWorkers:
    """Say once more what became of these workers: which have started, which are gone and how.
    They are lost if the engine knows nothing of the attempt; one that it never had of an attempt
    that is over exited with 0. Asked after a crash, which took reports with it."""

    job_id: JobId
    attempt: int
    workers: tuple[int, ...]


Command = StartWorkers | StopWorkers | AskToStop | KillWorkers | ChangeMembership | ReportWorkers
