"""How a job enters its next state: with what data, and with its time accounts closed.

Pure functions of one job. The roster calls `enter` with the state that the table gave.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rota.core.model import (
    Allocation,
    Ended,
    Held,
    HoldsGpus,
    Job,
    Purpose,
    Queued,
    Running,
    Starting,
    Stopping,
)
from rota.core.progress import service_at
from rota.core.states import State

BACKOFF_MAX_S = 600.0
FINALITY = tuple(Purpose)
"""A job that is stopping for two purposes follows the more final one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """With what a job enters its next state."""

    now: float
    reason: str = ""
    purpose: Purpose = Purpose.PREEMPT
    allocation: Allocation = ()
    backoff_s: float = 0.0


def enter(job: Job, state: State, *, entry: Entry) -> Job:
    """The job in its next state, its time accounts closed for the last one."""
    job = replace(job, service=service_at(job, entry.now))
    now = entry.now
    match state:
        case State.HELD:
            return replace(job, phase=Held(now))
        case State.QUEUED:
            return _queued(job, entry)
        case State.STARTING:
            return _starting(job, entry)
        case State.RUNNING:
            return _running(job, entry)
        case State.STOPPING:
            return _stopping(job, entry)
        case State.SUCCEEDED | State.FAILED | State.CANCELLED:
            return replace(job, phase=Ended(now, state, entry.reason))


def _queued(job: Job, entry: Entry) -> Job:
    stop_s = entry.now - job.phase.since_s if isinstance(job.phase, Stopping) else job.stop_s
    is_resizing = entry.purpose is Purpose.RESIZE
    service = job.service if is_resizing else replace(job.service, last_waiting_s=0.0)
    phase = Queued(entry.now, is_resizing=is_resizing)
    queued = replace(job, phase=phase, service=service, stop_s=stop_s)
    if entry.purpose is not Purpose.RETRY:
        return queued
    is_idle = job.epochs_done <= job.epochs_done_at_start
    wait_s = min(BACKOFF_MAX_S, entry.backoff_s * 2**job.failures)
    return replace(
        queued,
        phase=Queued(entry.now, not_before_s=entry.now + wait_s),
        failures=job.failures + 1,
        idle_attempts=job.idle_attempts + 1 if is_idle else 0,
    )


def _starting(job: Job, entry: Entry) -> Job:
    service = job.service
    if not (isinstance(job.phase, Queued) and job.phase.is_resizing):
        service = replace(service, last_running_s=0.0, last_gpu_s=0.0)
    return replace(
        job,
        phase=Starting(entry.now, entry.allocation),
        attempt=job.attempt + 1,
        generation=0,
        workers_numbered=len(entry.allocation),
        service=service,
        first_started_s=min(job.first_started_s, entry.now),
        epochs_done_at_start=job.epochs_done,
    )


def _running(job: Job, entry: Entry) -> Job:
    phase = job.phase
    if isinstance(phase, Starting):
        running = Running(entry.now, phase.allocation, job.numbers, exits=phase.exits)
        return replace(job, phase=running, start_s=entry.now - phase.since_s)
    assert isinstance(phase, Running)
    if entry.allocation:
        return _with_newcomers(job, entry.allocation, phase=phase)
    exits = {n: code for n, code in phase.exits.items() if n in phase.joining_numbers}
    running = Running(entry.now, phase.joining, phase.joining_numbers, exits=exits)
    return replace(job, phase=running)


def _with_newcomers(job: Job, joining: Allocation, *, phase: Running) -> Job:
    """Who stays keeps the number; every newcomer gets one that nobody had before, so that no late
    fact about a worker who left is taken for one about a worker who came."""
    numbers: list[int] = []
    next_number = job.workers_numbered
    for i, slot in enumerate(joining):
        if i < len(phase.allocation) and phase.allocation[i] == slot:
            numbers.append(phase.numbers[i])
        else:
            numbers.append(next_number)
            next_number += 1
    return replace(
        job,
        phase=replace(phase, joining=joining, joining_numbers=tuple(numbers)),
        generation=job.generation + 1,
        workers_numbered=next_number,
    )


def _stopping(job: Job, entry: Entry) -> Job:
    phase = job.phase
    assert isinstance(phase, HoldsGpus)
    if isinstance(phase, Stopping):
        stopping = phase
        if changes_the_end(phase, entry.purpose):
            stopping = replace(phase, purpose=entry.purpose, reason=entry.reason)
    else:
        stopping = Stopping(
            entry.now, job.members, job.numbers, entry.purpose, entry.reason, phase.exits
        )
    return replace(job, phase=stopping)


def changes_the_end(phase: Stopping, purpose: Purpose) -> bool:
    """A more final purpose wins; a release takes back a hold that has not come about yet."""
    if purpose is Purpose.PREEMPT:
        return phase.purpose is Purpose.HOLD
    return FINALITY.index(purpose) > FINALITY.index(phase.purpose)
